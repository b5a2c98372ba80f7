"""Faults 10 and 11: the Prefect server or the worker goes away."""

import subprocess
import time
from pathlib import Path

import pytest

from flows.processes import free_port
from tests.fault.conftest import Copy
from tests.fault.fault_world import RUN, FaultWorld, same_run, waits
from tests.fault.prefect_server import PrefectServer

EXECUTOR, EVALUATION = "i1/executor", "i1/evaluation"
pytestmark = pytest.mark.timeout(1800)


def test_no_server_from_the_start(copy: Copy) -> None:
    world = copy(server=f"http://127.0.0.1:{free_port()}")
    done = world.cli(*RUN)
    assert done.returncode == 1
    assert "anchorloop: the Prefect server does not answer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    "away_s",
    [
        5,
        None,
        pytest.param(60, marks=pytest.mark.soak),
        pytest.param(600, marks=pytest.mark.soak),
    ],
)
def test_the_server_goes_away_in_the_middle(
    copy: Copy, reference: FaultWorld, tmp_path: Path, away_s: int | None
) -> None:
    """What is computed stays, and the same command goes on; None: it stays away."""
    with PrefectServer(tmp_path) as server:
        world = copy([EXECUTOR, EVALUATION], server=server.url)
        if away_s is None:  # else it would be asked for many minutes before the run gives up
            world.environment["PREFECT_CLIENT_MAX_RETRIES"] = "1"
        go_on = world.root / "go_on"
        said = world.root / "outage.log"
        with (
            said.open("w") as output,
            subprocess.Popen(
                world.command(*RUN),
                cwd=world.root,
                env={**world.environment, "FAULT": f"wait_in_step:3,{go_on}"},
                stdout=output,
                stderr=output,
            ) as process,
        ):
            while not waits(go_on):
                assert process.poll() is None, said.read_text()
                time.sleep(0.02)
            server.stop()
            go_on.touch()
            if away_s is not None:
                time.sleep(away_s)
                server.start()
            status = process.wait(900)
        assert "Traceback" not in said.read_text()
        if away_s is None:
            assert status == 1
            assert "the same command goes on" in said.read_text()
            server.start()
        assert world.attempts(EXECUTOR) == 1
        assert world.store.verify(world.identities[EXECUTOR]) is not None
        if status != 0:
            done = world.cli(*RUN)
            assert done.returncode == 0, done.stderr
        assert world.attempts(EXECUTOR) == 1
        same_run(world, reference)
