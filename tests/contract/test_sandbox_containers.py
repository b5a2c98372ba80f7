"""Supervisors beside a stage whose start ends early, with a stand-in for docker on the path."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks import sandbox_containers
from tasks.launchers import Job
from tasks.sandbox_containers import start_beside
from training.config_load import load_config
from training.errors import InfraError
from training.plan import plan
from training.sandbox.settings import SandboxSettings

DOCKER = """#!/bin/sh
echo "$*" >> {calls}
case $1 in
ps) echo first ;;
run) if [ -e {calls}.ran ]; then {second}; fi; : > {calls}.ran ;;
esac
"""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Start supervisors; of the second one docker makes what it is told here."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sandbox_containers, "_CALL_S", 5.0)
    config = load_config("tiny", "anchorloop", {"iterations": 1})
    spec = next(entry.spec for entry in plan(config) if entry.spec.stage == "executor")
    out = tmp_path / "store" / "0123"
    job = Job("executor", out / "spec.json", out, out / "log", run="r", run_id="f00d")

    def started(second: str) -> None:
        docker = tmp_path / "docker"
        docker.write_text(DOCKER.format(calls=tmp_path / "calls", second=second))
        docker.chmod(0o755)
        start_beside(job, spec, SandboxSettings(workers=2))

    return started


@pytest.mark.parametrize(
    ("second", "raised", "words"),
    [
        ("echo no such image >&2; exit 125", InfraError, "did not start: no such image"),
        ("exec sleep 600", InfraError, "did not start in 5 s; see that the Docker engine"),
        ("kill -INT $PPID; exec sleep 600", KeyboardInterrupt, None),
    ],
)
def test_none_is_left_of_a_start_that_ends_early(
    start: Callable[[str], None],
    tmp_path: Path,
    second: str,
    raised: type[BaseException],
    words: str | None,
) -> None:
    with pytest.raises(raised, match=words):
        start(second)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["run", "run", "ps", "rm"]
    assert calls[-1] == "rm --force first"
    assert list(tmp_path.glob("store/*/work/*")) == []


def test_a_docker_that_is_gone_is_named(
    start: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(InfraError, match=r"did not start: .*No such file .* 'docker'"):
        start("")
    assert list(tmp_path.glob("store/*/work/*")) == []
