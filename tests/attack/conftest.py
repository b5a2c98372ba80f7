"""Sandboxes at each level; the container level needs an engine, which these tests start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from docker_engine import private_engine, sandbox_image
from sandbox_box import Box

LEVELS = [
    pytest.param("bubblewrap", id="bubblewrap"),
    pytest.param("container", id="container", marks=pytest.mark.system),
]


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """DOCKER_HOST of an engine of our own, with the sandbox image in it."""
    with private_engine() as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        sandbox_image()
        yield host


@pytest.fixture(scope="session", params=LEVELS)
def isolation(request: pytest.FixtureRequest) -> str:
    level = str(request.param)
    if level == "container":
        request.getfixturevalue("engine")
    return level


@pytest.fixture(scope="session")
def box(isolation: str) -> Iterator[Box]:
    """A sandbox with one supervisor, shared by all attacks: each must leave it unharmed."""
    opened = Box(isolation)
    yield opened
    opened.close()
