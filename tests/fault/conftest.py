"""The undisturbed run, and copies of it for each fault."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.fault.fault_world import RUN, FaultWorld
from tests.fault.prefect_server import PrefectServer
from training.sandbox.isolation import SandboxError, choose
from training.sandbox.settings import SandboxSettings

Copy = Callable[..., FaultWorld]


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server for all runs whose fault has nothing to do with it."""
    with PrefectServer(tmp_path_factory.mktemp("prefect")) as server:
        yield server.url


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, prefect: str) -> FaultWorld:
    """The run that nothing disturbs."""
    try:
        choose(SandboxSettings())
    except SandboxError as error:
        pytest.skip(str(error))
    world = FaultWorld(tmp_path_factory.mktemp("reference") / "root", prefect)
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    assert world.summary("r")["iterations"][1]["v_adv"] > 0, "nothing is learnt: a poor reference"
    return world


@pytest.fixture
def copy(reference: FaultWorld, prefect: str, tmp_path: Path) -> Copy:
    """``copy(without)``: the undisturbed run's artifacts in a new root, but for those stages."""
    made = iter(range(100))

    def make(without: Sequence[str] = (), server: str | None = prefect) -> FaultWorld:
        return reference.copy(tmp_path / f"root{next(made)}", server, without)

    return make
