"""The sandbox's small parts, each alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox_image import harden, seccomp, wire
from sandbox_image.processes import Processes
from sandbox_image.supervisor import source_hash as supervisor_hash
from sandbox_image.wipe import wipe
from training.sandbox import isolation, worker
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import CallResult, Verdict, observation


def result(verdict: Verdict, stdout: str = "") -> CallResult:
    return CallResult(verdict, stdout, 1, None, 0.1, False, "Traceback: secret")


def test_the_model_sees_stdout_and_one_fixed_sentence() -> None:
    assert observation(result(Verdict.OK, "3\n")) == "3\n"
    assert observation(result(Verdict.OK)) == ""
    seen = {observation(result(verdict)) for verdict in Verdict if verdict is not Verdict.INFRA}
    assert len(seen) == 5
    assert not any("secret" in text for text in seen)
    timeout = observation(result(Verdict.TIMEOUT))
    assert observation(result(Verdict.TIMEOUT, "1\n")) == "1\n" + timeout
    assert observation(result(Verdict.TIMEOUT, "1")) == "1\n" + timeout


def test_an_infra_failure_is_no_observation() -> None:
    with pytest.raises(ValueError, match="resample"):
        observation(result(Verdict.INFRA))


def test_defaults_are_the_methods_limits() -> None:
    defaults = SandboxSettings()
    assert (defaults.wall_seconds, defaults.memory_mb) == (30.0, 1024)
    assert (defaults.isolation, defaults.infra_share_limit) == ("auto", 0.02)


@pytest.mark.parametrize(
    "values", [{"wall": 3}, {"workers": 0}, {"isolation": "none"}, {"memory_mb": -1}]
)
def test_impossible_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SandboxSettings(**values)  # type: ignore[arg-type]


def test_both_sides_agree_on_what_they_share() -> None:
    assert (isolation.PROGRAM_ID, isolation.KEEPER_ID) == (harden.PROGRAM_ID, harden.KEEPER_ID)
    assert isolation.source_hash() == supervisor_hash()
    assert worker._MAX_FRAME == wire.MAX_FRAME


def test_the_filter_is_well_formed() -> None:
    code = seccomp.program(seccomp.REFUSED.values())
    assert len(code) % 8 == 0
    assert len(code) // 8 < 4096
    assert len(set(seccomp.REFUSED.values())) == len(seccomp.REFUSED)


def test_without_isolation_nothing_may_be_signalled() -> None:
    """A kill(-1) at the level `unsafe` would end everything its user runs."""
    refused = seccomp.REFUSED | seccomp.SIGNALS
    assert refused["kill"] == 62
    assert len(seccomp.program(refused.values())) > len(seccomp.program(seccomp.REFUSED.values()))
    with pytest.raises(OSError, match="process 1"):
        Processes()


def test_wipe_empties_any_tree_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "file").write_text("x")
    (folder / "moved-0").write_text("a name that wipe would like to use")
    (folder / "link").symlink_to(outside)
    (folder / "broken").symlink_to("nowhere")
    (folder / "b\udcffd").mkdir()
    (folder / "b\udcffd" / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=deep)
        above, deep = deep, os.open("deeper", os.O_RDONLY, dir_fd=deep)
        os.chmod(above, 0)
        os.close(above)
    os.close(deep)
    os.chmod(folder, 0o700)
    wipe(str(folder))
    assert os.listdir(folder) == []
    assert (outside / "kept").read_text() == "kept"


def test_wipe_refuses_a_link_in_place_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"."):
        wipe(str(tmp_path / "link"))
    assert (tmp_path / "real" / "kept").exists()


def test_no_command_shows_a_home_or_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORLOOP_SECRET", "hush")
    command = isolation.bubblewrap_launch(Path("/run/x")).command
    assert "hush" not in " ".join(command)
    shown = {command[n + 1] for n, word in enumerate(command) if word in ("--ro-bind", "--bind")}
    assert not shown & {"/", "/home", "/root", "/etc", "/var", "/tmp", str(Path.home())}
    assert "--bind" not in command
    container = isolation.container_launch(SandboxSettings(), Path("/run/x"), "name").command
    for option in ("--read-only", "no-new-privileges", "--pids-limit", "--memory", "--network"):
        assert option in container
    volumes = [container[n + 1] for n, word in enumerate(container) if word == "--volume"]
    assert volumes == ["/run/x:/run/sandbox:ro"]
