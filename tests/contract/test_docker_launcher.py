"""Stages in real containers: an engine of the tests' own, an image with this machine's Python."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tasks import docker_launcher, launchers
from tasks.container import Machine
from tasks.docker_launcher import DockerLauncher
from tasks.home import home
from tasks.maintenance import Survey, Wanted, carry_out, survey
from tasks.runs import create, driving
from tasks.stage import StageFailed, run_stage
from tests.attack.docker_engine import private_engine
from tests.contract.conftest import let_go, when_said
from tests.contract.stage_image import ROOT, make_image, mounts
from tests.integration.flow_world import World
from training.config_load import load_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

_RUN = "import sys, runpy; sys.path.append({!r}); runpy.run_module({!r}, None, '__main__')"
STUB_PROGRAM = ["-c", _RUN.format(str(ROOT), "tests.contract.stub_stages")]
GLUTTON = ["-c", "kept = [bytearray(1 << 24) for _ in range(1 << 10)]"]
MEMORY = 512 << 20
WATCHED = "is still running and is watched again"
OUTPUT = ".anchorloop/store/*/work/logs/*/output.log"
PROVE = """
from training.sandbox.selftest import self_test
from training.sandbox.settings import SandboxSettings
for check in self_test(SandboxSettings()):
    print("holds" if check.ok else "broken", check.name, check.detail)
"""
CALLS = """
import asyncio, sys
from pathlib import Path
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

async def main():
    async with Sandbox(SandboxSettings(workers=1)) as sandbox:
        right = 0
        for n in range(60):
            result = await sandbox.run(f"import time; time.sleep(0.1); print({n} * 7)")
            right += result.stdout == f"{7 * n}\\n"
            if n == 3:
                print("calls", flush=True)
                while not (Path(sys.argv[-1]).parent / "go-on").exists():
                    await asyncio.sleep(0.02)
        print(f"{right} right, {sandbox.metrics()['sandbox/restarts']:.0f} restarts", flush=True)

asyncio.run(main())
"""
SITE = """
from tasks import launchers

def stage_containers(image):
    from tasks.docker_launcher import DockerLauncher
    from tests.contract.stage_image import mounts
    return DockerLauncher(image, mounts())

launchers.LAUNCHERS["docker"] = stage_containers
"""
DRIVER = """
    import sys
    from tasks import launchers
    from tasks.docker_launcher import DockerLauncher
    from tasks.runs import driving
    from tasks.stage import run_stage
    from tests.contract.stage_image import mounts
    launchers.LAUNCHERS["docker"] = lambda image: DockerLauncher(image, mounts())
    with driving("r") as run:
        run_stage(run, run.entry(0, sys.argv[1]))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[docker.DockerClient]:
    with (
        private_engine(tmp_path_factory.mktemp("docker")) as host,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DOCKER_HOST", host)
        client = docker.DockerClient(host, timeout=60)
        yield client
        client.close()


@pytest.fixture
def world(engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root whose stages run in containers; afterwards no container may be left."""
    monkeypatch.setenv("ANCHORLOOP_HOME", str(tmp_path))
    monkeypatch.setitem(
        launchers.LAUNCHERS, "docker", lambda image: DockerLauncher(image, mounts())
    )
    os.chdir(ROOT)
    yield tmp_path
    left = engine.containers.list(all=True)
    for container in left:
        container.remove(force=True)
    assert [container.name for container in left] == []


def new_run(program: list[str], tool: bool = False, **environment: object) -> str:
    """A run named r whose stages are this program; returns the digest of its image."""
    image = make_image(os.environ["DOCKER_HOST"], program, **environment)
    config = load_config("tiny", "anchorloop", {"iterations": 1, "rollout": {"tool": tool}})
    create(config, "r", "study", where="docker", image=image)
    return image


def stub_run(world: Path, **environment: str) -> None:
    starts = world / ".anchorloop" / "store" / "starts.log"
    new_run(STUB_PROGRAM, STUB_LOG=str(starts), **environment)


def held_run(world: Path) -> Path:
    """A run of stubs that do one step and are then held; returns the path of the hold."""
    hold = world / ".anchorloop" / "store" / "hold"
    stub_run(world, STUB_HOLD=str(hold))
    let_go(hold, 0)
    return hold


def go_on(world: Path) -> None:
    """Let the program CALLS go on with its calls."""
    (world / ".anchorloop" / "store" / "go-on").touch()


def starts(world: Path) -> list[str]:
    return (world / ".anchorloop" / "store" / "starts.log").read_text().splitlines()


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def begun(world: Path) -> bool:
    """Whether the first stage has passed a step."""
    return bool(list(world.glob(".anchorloop/store/*/work/checkpoint.json")))


def driver(world: Path, stage: str = "base_model") -> "subprocess.Popen[bytes]":
    """A process of its own that runs a stage of iteration 0 and can be killed."""
    said = (world / "driver.log").open("ab")
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), stage]
    return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)


def test_a_real_stage_runs_to_its_end(world: Path, engine: docker.DockerClient) -> None:
    image = new_run(["-m", "training.stages"])
    with driving("r") as run:
        curriculum, pool = run.entry(1, "curriculum"), run.entry(1, "task_pool")
        place = run.store.place(curriculum.identity)
        place.payload.mkdir(parents=True)
        candidate = {"step": 0, "index": 0, "r_fmt": 1, "problem": "1 + 1"}
        (place.payload / "candidates.jsonl").write_text(json.dumps(candidate) + "\n")
        with run.store.hold(curriculum.identity) as attempt:
            result = {"metrics": {}, "seconds": 1.0, "steps": 1, "inputs": {}}
            run.store.publish(curriculum.identity, attempt, result)
        outcome = run_stage(run, pool)
        assert run_stage(run, pool).reused
    assert outcome.metrics["tasks"] == 1
    note = next(Path(outcome.path).parent.glob("work/logs/*/container.json"))
    assert json.loads(note.read_text())["image"] == image


def test_the_container_outlives_a_killed_driver_and_is_watched_again(
    world: Path, engine: docker.DockerClient, caplog: pytest.LogCaptureFixture
) -> None:
    hold = held_run(world)
    first = driver(world)
    until(lambda: begun(world))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (running,) = engine.containers.list()
    assert running.labels["anchorloop.run"] == "r"
    assert running.labels["anchorloop.stage"] == "base_model"
    with driving("r") as run:
        entry = run.entry(0, "base_model")
        assert running.labels["anchorloop.identity"] == entry.identity
        caplog.set_level("INFO", "anchorloop")
        when_said(caplog, WATCHED, lambda: let_go(hold))
        outcome = run_stage(run, entry)
        assert run_stage(run, entry).reused
    assert not outcome.reused
    assert starts(world) == ["base_model:0 from 0"]


def test_clean_removes_containers_that_nobody_comes_back_for(
    world: Path, engine: docker.DockerClient
) -> None:
    held_run(world)
    first = driver(world)
    until(lambda: begun(world))
    only, also = Wanted(("containers",)), Wanted(("containers",), running_containers=True)
    assert survey(home(), also) == Survey([], [])  # somebody drives the run
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (running,) = engine.containers.list()
    assert survey(home(), only).deletions == []  # the next start of the run goes on with it
    assert f"container {running.name} computes base_model of 'r'" in survey(home(), only).notes[0]
    running.kill()
    until(lambda: engine.containers.list() == [])
    listed = survey(home(), only)
    assert [d.reason for d in listed.deletions] == ["base_model ended and nobody drives 'r'"]
    carry_out(home(), listed, lambda *_: None)
    assert engine.containers.list(all=True) == []

    second = driver(world)
    until(lambda: engine.containers.list())
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    listed = survey(home(), also)
    assert [d.reason for d in listed.deletions] == ["base_model computes, but nobody drives 'r'"]
    carry_out(home(), listed, lambda *_: None)
    assert engine.containers.list(all=True) == []


def test_a_container_shows_no_secret_of_the_driver(
    world: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "PREFECT_API_AUTH_STRING", "API_KEY"):
        monkeypatch.setenv(name, "canary")
    held_run(world)
    first = driver(world)
    until(lambda: begun(world))
    (running,) = engine.containers.list()
    shown = json.dumps(running.attrs)
    os.kill(first.pid, signal.SIGINT)
    assert first.wait(60) != 0
    assert "anchorloop.identity" in shown
    assert "canary" not in shown
    kept = [path for path in world.rglob("*") if path.is_file()]
    assert [path for path in kept if b"canary" in path.read_bytes()] == []


def test_a_stage_is_cancelled_with_its_driver(world: Path, engine: docker.DockerClient) -> None:
    held_run(world)
    first = driver(world)
    until(lambda: begun(world))
    os.kill(first.pid, signal.SIGINT)
    assert first.wait(60) != 0
    assert engine.containers.list(all=True) == []
    failure = next(world.glob(".anchorloop/store/*/work/failure.json"))
    assert json.loads(failure.read_text())["kind"] == "interrupted"


def test_a_kill_for_want_of_memory_is_told_apart(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run(GLUTTON)
    small = DockerLauncher
    monkeypatch.setitem(launchers.LAUNCHERS, "docker", lambda image: small(image, mounts(), MEMORY))
    with (
        driving("r") as run,
        pytest.raises(StageFailed, match="out_of_memory: it was killed for want") as e,
    ):
        run_stage(run, run.entry(0, "base_model"))
    assert e.value.kind == "out_of_memory"


def test_a_container_that_somebody_kills_is_not_taken_for_one_out_of_memory(world: Path) -> None:
    new_run(["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM); os._exit(137)"])
    with driving("r") as run, pytest.raises(StageFailed, match="its process was killed") as e:
        run_stage(run, run.entry(0, "base_model"))
    assert e.value.kind == "interrupted"


def test_a_dead_leftover_is_removed_and_the_stage_goes_on(
    world: Path, engine: docker.DockerClient
) -> None:
    hold = held_run(world)
    first = driver(world)
    until(lambda: begun(world))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (left,) = engine.containers.list()
    left.kill()
    until(lambda: not engine.containers.list())
    let_go(hold)
    with driving("r") as run:
        assert not run_stage(run, run.entry(0, "base_model")).reused
    assert starts(world) == ["base_model:0 from 0", "base_model:0 from 1"]


def test_failures_and_output_arrive(world: Path) -> None:
    stub_run(world, STUB_FAIL="base_model:0:numeric!")
    with driving("r") as run, pytest.raises(StageFailed, match="the stub's loss became nan") as e:
        run_stage(run, run.entry(0, "base_model"))
    assert e.value.kind == "numeric"
    assert e.value.log_file is not None
    assert "the stub's loss became nan" in e.value.log_file.read_text()


def test_an_absent_image_is_named(world: Path) -> None:
    config = load_config("tiny", "anchorloop", {"iterations": 1})
    create(config, "r", "study", where="docker", image="no-such-image")
    with driving("r") as run, pytest.raises(StageFailed, match="image 'no-such-image' is not") as e:
        run_stage(run, run.entry(0, "base_model"))
    assert e.value.kind == "config"


@pytest.fixture
def supervisors(engine: docker.DockerClient) -> Iterator[None]:
    """The engine has a sandbox image: this machine's Python and the supervisor."""
    program = ["-s", "-P", "-B", "-m", "sandbox_image"]
    python = str(ROOT / ".sandbox" / "bin" / "python")
    made = make_image(os.environ["DOCKER_HOST"], program, python, PYTHONPATH=ROOT)
    engine.images.get(made).tag("anchorloop-sandbox")
    yield
    engine.images.remove("anchorloop-sandbox", force=True)


@pytest.mark.parametrize("user", ["0:0", "65534:65534"])
def test_supervisors_beside_a_stage_keep_the_sandboxs_promises(
    world: Path,
    engine: docker.DockerClient,
    supervisors: None,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
) -> None:
    monkeypatch.setattr(
        docker_launcher, "this_machine", lambda memory: Machine(memory, os.environ, user)
    )
    new_run(["-c", PROVE], tool=True)
    with driving("r") as run, pytest.raises(StageFailed, match="without a complete artifact") as e:
        run_stage(run, run.entry(0, "evaluation"))
    assert e.value.log_file is not None
    said = e.value.log_file.read_text().splitlines()
    assert "holds sandbox/isolation container" in said
    assert len(said) > 5
    assert [line for line in said if not line.startswith("holds")] == []
    assert list(world.glob(".anchorloop/store/*/work/sandbox-*")) == []


def test_a_supervisor_that_is_killed_is_replaced_and_all_end_with_the_stage(
    world: Path, engine: docker.DockerClient, supervisors: None
) -> None:
    new_run(["-c", CALLS], tool=True)
    with driving("r") as run:
        entry = run.entry(0, "evaluation")
        killer = threading.Thread(target=kill_when_it_calls, args=(engine, world))
        killer.start()
        with pytest.raises(StageFailed, match="without a complete artifact") as e:
            run_stage(run, entry)
        killer.join()
    assert e.value.log_file is not None
    said = e.value.log_file.read_text().splitlines()
    assert said[-1] == "60 right, 1 restarts"


def test_supervisors_outlive_a_killed_driver_with_their_stage(
    world: Path,
    engine: docker.DockerClient,
    supervisors: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    new_run(["-c", CALLS], tool=True)
    first = driver(world, "evaluation")
    until(lambda: any("calls" in log.read_text() for log in world.glob(OUTPUT)))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    caplog.set_level("INFO", "anchorloop")
    when_said(caplog, WATCHED, lambda: go_on(world))
    with driving("r") as run, pytest.raises(StageFailed, match="without a complete artifact") as e:
        run_stage(run, run.entry(0, "evaluation"))
    assert e.value.log_file is not None
    assert e.value.log_file.read_text().splitlines()[-1] == "60 right, 0 restarts"
    assert engine.containers.list(all=True) == []


def kill_when_it_calls(engine: docker.DockerClient, world: Path) -> None:
    """Kill the supervisors by their processes, as a crash would; then the calls go on."""
    try:
        until(lambda: any("calls" in log.read_text() for log in world.glob(OUTPUT)))
        for container in engine.containers.list(filters={"label": "anchorloop.beside"}):
            pid = container.attrs["State"]["Pid"]  # 0 where it ended: all of this process's group
            if container.name.startswith("anchorloop-sandbox-") and pid:
                os.kill(pid, signal.SIGKILL)
    finally:
        go_on(world)


@pytest.mark.parametrize("user", ["0:0", "65534:65534"])
def test_the_sandbox_keeps_its_promises_in_a_stage_that_has_the_tool(
    world: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setattr(
        docker_launcher, "this_machine", lambda memory: Machine(memory, os.environ, user)
    )
    new_run(["-c", PROVE], tool=True)
    with driving("r") as run, pytest.raises(StageFailed, match="without a complete artifact") as e:
        run_stage(run, run.entry(0, "evaluation"))
    assert e.value.log_file is not None
    said = e.value.log_file.read_text().splitlines()
    assert "holds sandbox/isolation bubblewrap" in said
    assert len(said) > 5
    assert [line for line in said if not line.startswith("holds")] == []


def test_the_command_line_finds_its_container_again_and_ends_it(
    world: Path, engine: docker.DockerClient
) -> None:
    log = world / ".anchorloop" / "store" / "starts.log"
    image = make_image(os.environ["DOCKER_HOST"], STUB_PROGRAM, STUB_LOG=log, STUB_STEP_S="600")
    line = World(world, stubs=False)
    (world / "sitecustomize.py").write_text(SITE)
    line.environment["PYTHONPATH"] += f"{os.pathsep}{world}"
    arguments = ("run", "--iterations", "0", "--name", "r", "--launcher", "docker")
    line.killed(log.exists, *arguments, "--image", image)
    (running,) = engine.containers.list()
    said = world / "killed.log"
    status = line.signalled(
        signal.SIGTERM, lambda: WATCHED in said.read_text(), *arguments, "--image", image
    )
    assert status == 130
    assert engine.containers.list(all=True) == []
    assert len(starts(world)) == 1
    assert running.labels["anchorloop.run"] == "r"
    assert line.processes() == []
