"""A flow run whose process is gone: Prefect shows it as Crashed, and Retry goes on with it."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.heartbeats import NAME, listen_for_silence
from tasks.heartbeat import SILENT
from tasks.home import HEARTBEAT
from tasks.zombies import close_undriven
from tests.integration.flow_world import LIMIT_S, Prefect, World

BEAT_S = "3.5"
WINDOW_S = 3 * 3.5
ARGUMENTS = ("--iterations", "1", "--seed", "1")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root", stubs=True)


def find(world: World, *words: str) -> list[int]:
    """Process ids of this world whose command line has all the words."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            ours = str(world.root).encode() in (entry / "environ").read_bytes()
            if ours and all(word in line for word in words):
                found.append(int(entry.name))
    return found


def wait(what: Callable[[], bool], seconds: float = LIMIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def trigger(prefect: Prefect, parameters: dict[str, object]) -> str:
    deployment = prefect.call("/deployments/name/experiment/experiment")["id"]
    body = {"parameters": parameters}
    return str(prefect.call(f"/deployments/{deployment}/create_flow_run", body)["id"])


def press_retry(prefect: Prefect, flow_run: str) -> None:
    """What the button of Prefect's pages sends."""
    asked = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}
    answer = prefect.call(f"/flow_runs/{flow_run}/set_state", {"state": asked})
    assert answer["status"] == "ACCEPT", answer


def state(prefect: Prefect, flow_run: str) -> tuple[str, str]:
    found = prefect.call(f"/flow_runs/{flow_run}")["state"]
    return found["name"], found["message"] or ""


def ended(prefect: Prefect, flow_run: str) -> bool:
    """Whether it is over; one that was silent on a busy machine comes back to life."""
    now = state(prefect, flow_run)
    return now[0] in ("Completed", "Failed", "Crashed") and now != ("Crashed", SILENT)


@pytest.mark.system
@pytest.mark.timeout(1800)
def test_killed_flow_runs_become_crashed_and_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"STUB_SLOW": "executor", "STUB_STEP_S": "3", HEARTBEAT: BEAT_S}
    with world.servers(**environment) as prefect:
        # The worker and the flow's process at once: nobody is left to tell Prefect.
        flow_run = trigger(prefect, {"name": "w", "iterations": 1})
        wait(lambda: "executor:1 from 0" in world.starts)
        for pid in [*find(world, "prefect worker"), *find(world, "prefect.engine")]:
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        assert state(prefect, flow_run)[0] == "Running"

        # Meanwhile the command line, killed in the same way.
        command = ("run", "--name", "c", *ARGUMENTS)
        world.killed(lambda: world.starts.count("executor:1 from 0") == 2, *command, **environment)
        assert prefect.states("flow_runs", "c") == ["Running"]

        wait(lambda: state(prefect, flow_run) == ("Crashed", SILENT))
        print(f"crashed after {time.monotonic() - killed:.0f} s, window {WINDOW_S} s")
        wait(lambda: prefect.states("flow_runs", "c") == ["Crashed"])
        wait(lambda: prefect.states("flow_runs", "c/i1") == ["Crashed"])
        assert prefect.states("flow_runs", "c/i0") == ["Completed"]

        assert world.cli("up", **environment).returncode == 0  # a worker again
        automations = [a["name"] for a in prefect.call("/automations/filter", {})]
        assert automations.count(NAME) == 1
        monkeypatch.setenv(HEARTBEAT, BEAT_S)
        with SyncPrefectClient(api=f"{prefect.url}/api") as client:
            assert not listen_for_silence(client)  # as it should be: changing it forgets beats
            # One that was killed while no server was up: it never beat where anybody listened.
            flow = prefect.call("/flows/", {"name": "experiment"})["id"]
            uid = json.loads((world.root / "runs" / "c" / "run.json").read_text())["uid"]
            asked = {"flow_id": flow, "state": {"type": "RUNNING"}, "name": "c"}
            left, stranger = (
                prefect.call("/flow_runs/", {**asked, "tags": tags})["id"]
                for tags in ([f"run:{uid[:12]}"], ["run:anothers"])
            )
            assert close_undriven(client, world.root / "runs") == 0  # it may be starting
            monkeypatch.setattr("tasks.zombies._STARTING", timedelta(0))
            assert close_undriven(client, world.root / "runs") == 1
        assert state(prefect, left)[0] == "Crashed"
        assert state(prefect, stranger)[0] == "Running"
        press_retry(prefect, flow_run)
        wait(lambda: ended(prefect, flow_run))
        assert state(prefect, flow_run)[0] == "Completed", state(prefect, flow_run)
        assert prefect.states("flow_runs", "w/i1") == ["Completed", "Crashed"]
        # The same worker tidies up; the command line lists the same and deletes nothing.
        dry = world.cli("clean", "--only", "checkpoints")
        assert "its stage is published" in dry.stdout
        assert "nothing was deleted" in dry.stdout
        scrap = world.artifact(world.identity("w", "i1/executor")).parent / "work/checkpoint.json"
        assert scrap.exists()
        wanted = {"dry_run": False, "include": ["checkpoints"]}
        tidied = prefect.trigger("maintenance/maintenance", wanted)
        assert tidied["state_type"] == "COMPLETED", tidied["state"]
        assert not scrap.exists()
        table = next(a for a in prefect.call("/artifacts/filter", {}) if a["key"] == "maintenance")
        rows = json.loads(table["data"])
        done = {row["what"] for row in rows if row["outcome"] == "done"}
        assert f"work/checkpoint.json of i1/executor ({scrap.parents[1].name[:12]})" in done
        assert "nothing to delete" in world.cli("clean", "--only", "checkpoints").stdout
    # Of "w" the killed stage alone came twice; "c" came as far as the same stage.
    assert len(world.starts) == 8 + 1 + 7, world.starts
    assert world.left() == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_run_taken_for_dead_while_the_server_was_away_is_running_again(world: World) -> None:
    environment = {"STUB_SLOW": "executor", "STUB_STEP_S": "15", HEARTBEAT: BEAT_S}
    with world.servers(**environment) as prefect:
        flow_run = trigger(prefect, {"name": "w", "iterations": 1})
        wait(lambda: "executor:1 from 0" in world.starts)
        server = find(world, "prefect server start")
        for pid in server:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * WINDOW_S)
        for pid in server:
            os.kill(pid, signal.SIGCONT)
        wait(lambda: state(prefect, flow_run) == ("Crashed", SILENT))
        wait(lambda: state(prefect, flow_run)[0] == "Running")
        wait(lambda: state(prefect, flow_run)[0] not in ("Running", "Crashed"))
        assert state(prefect, flow_run)[0] == "Completed"
    assert len(world.starts) == 8
