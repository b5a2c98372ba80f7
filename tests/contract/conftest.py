"""A run folder of its own a test, with stub stages."""

import os
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
