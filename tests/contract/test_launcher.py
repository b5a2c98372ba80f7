"""A stage's process: its own group and log, and it dies with its driver."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tasks import docker_launcher
from tasks.launchers import Job, LocalLauncher, launcher
from tasks.runs import create
from training.config_load import load_config
from training.errors import InfraError


def program(folder: Path, name: str, code: str) -> str:
    """A module that stands in for ``training.stages``; it may use ``out``."""
    head = "import os, sys, time, signal, subprocess\nout = sys.argv[sys.argv.index('--out') + 1]\n"
    (folder / f"{name}.py").write_text(head + textwrap.dedent(code))
    return name


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Job("executor", tmp_path / "spec.json", tmp_path, tmp_path / "logs" / "output.log")


def until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def test_status_and_log(job: Job, tmp_path: Path) -> None:
    module = program(tmp_path, "speaks", "print('out'); print('err', file=sys.stderr); sys.exit(3)")
    running = LocalLauncher(module).start(job)
    assert running.wait(20) == 3
    assert sorted(job.log.read_text().split()) == ["err", "out"]


def test_command_is_the_stage_contract(job: Job, tmp_path: Path) -> None:
    running = LocalLauncher(program(tmp_path, "echoes", "print(sys.argv[1:])")).start(job)
    assert running.wait(20) == 0
    expected = ["executor", "--spec", str(tmp_path / "spec.json"), "--out", str(tmp_path)]
    assert job.log.read_text().strip() == str(expected)


def test_stop_ends_the_whole_group_even_if_it_ignores_the_request(job: Job, tmp_path: Path) -> None:
    code = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, '-c',
            'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'])
        open(out + '/child', 'w').write(str(child.pid))
        time.sleep(60)
    """
    running = LocalLauncher(program(tmp_path, "stubborn", code)).start(job)
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    child = int((tmp_path / "child").read_text())
    running.stop(grace=0.3)
    assert gone(running.pid)
    until(lambda: gone(child))


def test_stop_lets_a_stage_end_in_order(job: Job, tmp_path: Path) -> None:
    code = """
        def end(*_):
            open(out + '/ended', 'w').close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        open(out + '/ready', 'w').close()
        time.sleep(60)
    """
    running = LocalLauncher(program(tmp_path, "orderly", code)).start(job)
    until((tmp_path / "ready").exists)
    running.stop(grace=20)
    assert (tmp_path / "ended").exists()


def test_stage_dies_with_a_killed_driver(job: Job, tmp_path: Path) -> None:
    code = "open(out + '/pid', 'w').write(str(os.getpid())); time.sleep(60)"
    module = program(tmp_path, "sleeps", code)
    driver = f"""
        import time
        from pathlib import Path
        from tasks.launchers import Job, LocalLauncher
        folder = Path({str(tmp_path)!r})
        LocalLauncher({module!r}).start(Job("executor", folder / "s", folder, folder / "log"))
        time.sleep(60)
    """
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(driver)], cwd=root)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: gone(pid))


def test_unknown_launcher_is_refused() -> None:
    with pytest.raises(
        ValueError, match="launcher 'moon' does not exist; choose from docker, local"
    ):
        launcher("moon")


def test_the_environment_names_what_a_new_run_leaves_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANCHORLOOP_HOME", str(tmp_path))
    monkeypatch.setattr(docker_launcher, "DockerLauncher", lambda image: image)
    for name in ("ANCHORLOOP_LAUNCHER", "ANCHORLOOP_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    assert create(load_config(), "old", "study").launcher == "local"
    assert launcher("docker") == "anchorloop-gpu"
    monkeypatch.setenv("ANCHORLOOP_LAUNCHER", "docker")
    monkeypatch.setenv("ANCHORLOOP_IMAGE", "ours")
    assert create(load_config(), "new", "study").launcher == "docker"
    assert create(load_config(), "old", "study").launcher == "local"
    assert create(load_config(), "asked", "study", where="local").launcher == "local"
    assert launcher("docker") == "ours"
    assert launcher("docker", "named") == "named"


def test_a_container_engine_that_stays_silent_is_given_up(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_launcher, "CALL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(InfraError, match="no Docker engine answers"):
            launcher("docker").adopt(job)
