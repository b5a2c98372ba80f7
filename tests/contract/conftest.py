"""A run folder of its own a test, with stub stages."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks import launchers

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stub_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root whose stages are stubs; their starts are lines of ``starts.log``."""
    monkeypatch.setenv("ANCHORLOOP_HOME", str(tmp_path))
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "starts.log"))
    monkeypatch.delenv("STUB_FAIL", raising=False)

    def stub() -> launchers.Launcher:
        return launchers.LocalLauncher("tests.contract.stub_stages")

    monkeypatch.setitem(launchers.LAUNCHERS, "local", stub)
    os.chdir(ROOT)
    return tmp_path


def starts(home: Path) -> list[str]:
    """What the stubs noted: ``stage:iteration from step``."""
    log = home / "starts.log"
    return log.read_text().splitlines() if log.exists() else []


def when_waiting(caplog: pytest.LogCaptureFixture, act: Callable[[], None]) -> None:
    """Call ``act`` from a thread as soon as the log says that this process waits for another."""
    when_said(caplog, "waiting for it", act)


def when_said(caplog: pytest.LogCaptureFixture, words: str, act: Callable[[], None]) -> None:
    """Call ``act`` from a thread as soon as the log has these words."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while words not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    threading.Thread(target=watch, daemon=True).start()


def let_go(hold: Path, *steps: int) -> None:
    """Let a stub that ``STUB_HOLD`` holds do these steps."""
    for step in steps or range(4):
        Path(f"{hold}-{step}").touch()
