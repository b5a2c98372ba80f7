"""Faults 8 and 9: MLflow is down at the start, in the middle or at the end, or never answers."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.home import Home
from tests.fault.conftest import Copy
from tests.fault.fault_world import RUN, FaultWorld, same_run, waits
from tests.fault.mlflow_server import MlflowServer, Silence

EXECUTOR, EVALUATION = "i1/executor", "i1/evaluation"
pytestmark = pytest.mark.timeout(900)


def run_with_outage(
    world: FaultWorld, server: MlflowServer, when: Callable[[], bool], go_on: Path
) -> "subprocess.CompletedProcess[str]":
    """The run to its end; the server is killed with -9 as soon as ``when`` holds, and then the
    stage that waits for the file ``go_on`` goes on."""
    command = world.command(*RUN, "--tracking-uri", server.url)
    said = world.root / "outage.log"
    environment = {**world.environment, "FAULT": f"wait_in_step:3,{go_on}"}
    with (
        said.open("w") as output,
        subprocess.Popen(
            command, cwd=world.root, env=environment, stdout=output, stderr=output
        ) as process,
    ):
        while process.poll() is None and not when():
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        assert process.poll() is None, f"it ended by itself: {said.read_text()}"
        server.stop()
        go_on.touch()
        process.wait(600)
    return subprocess.CompletedProcess(command, process.returncode, "", said.read_text())


@pytest.mark.system
def test_down_from_the_start(copy: Copy, reference: FaultWorld) -> None:
    world = copy()
    with MlflowServer(world.root) as server:
        asked = (*RUN, "--tracking-uri", server.url)
        done = world.cli(*asked)
        assert done.returncode == 0, done.stderr
        server.start()
        again = world.cli(*asked)
        assert again.returncode == 0, again.stderr
        same_run(world, reference)


@pytest.mark.system
@pytest.mark.parametrize("moment", ["middle", "end"])
def test_down_on_the_way(copy: Copy, reference: FaultWorld, moment: str) -> None:
    """The run ends well without it; the next start of the same run sends what is missing."""
    world = copy([EXECUTOR, EVALUATION] if moment == "middle" else [EVALUATION])
    go_on = world.root / "go_on"
    progress = world.place(EVALUATION) / "work" / "progress.json"
    when = (lambda: waits(go_on)) if moment == "middle" else progress.exists
    with MlflowServer(world.root) as server:
        server.start()
        done = run_with_outage(world, server, when, go_on)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        server.start()
        again = world.cli(*RUN, "--tracking-uri", server.url)
        assert again.returncode == 0, again.stderr
        same_run(world, reference)


@pytest.mark.system
def test_a_server_that_never_answers_holds_up_no_step(copy: Copy, reference: FaultWorld) -> None:
    """One request outlasts the whole run: were a step to wait for it, the run would not end."""
    world = copy([EXECUTOR, EVALUATION])
    with Silence() as server:
        world.environment["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "3600"
        done = world.cli(*RUN, "--tracking-uri", server.url)
        assert done.returncode == 0, done.stderr
        assert len(server.taken) == 1
    again = world.cli(*RUN, "--tracking-uri", Home(world.root).tracking_uri)
    assert again.returncode == 0, again.stderr
    same_run(world, reference)
