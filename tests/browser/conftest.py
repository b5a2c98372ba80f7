"""Debian's Chromium, and a folder for pictures of the pages."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="session")
def pictures() -> Iterator[Path]:
    """An empty folder of pictures, named at the end of the session."""
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    yield PICTURES
    print(f"\nscreenshots: {PICTURES}")


@pytest.fixture(scope="session")
def browser():  # type: ignore[no-untyped-def]
    """A headless browser that reaches this machine alone."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "Chromium is not installed; apt-get install chromium"
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        browser = driver.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
