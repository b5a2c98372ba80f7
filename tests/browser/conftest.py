"""Debian's Chromium, and a folder for pictures of the pages."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"
TAKEN = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest) -> Path:
    """An empty folder for pictures."""
    request.config.stash[TAKEN] = PICTURES
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    return PICTURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the pictures are, also after a failure."""
    if folder := terminalreporter.config.stash.get(TAKEN, None):
        terminalreporter.write_line(f"pictures of the pages: {folder}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless browser that reaches this machine alone."""
    program = shutil.which("chromium")
    assert program, "Chromium is not installed; apt-get install chromium"
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        browser = driver.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
