"""What the button Retry repeats and what it passes over: stub stages, real server and worker."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import let_go
from tests.integration.flow_world import LIMIT_S, ROOT, Prefect, World

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

FIRST = ["base_model:0 from 0", "evaluation:0 from 0"]
SECOND = [
    f"{stage}:1 from 0"
    for stage in ("anchor", "curriculum", "task_pool", "anchor_cache", "executor", "evaluation")
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A folder with servers and a copy of the project whose code a test may change."""
    folder = tmp_path_factory.mktemp("retry")
    source = folder / "source"
    for part in ("flows", "tasks", "training", "sandbox_image", "tests/contract"):
        shutil.copytree(ROOT / part, source / part)
    shutil.copy(ROOT / "prefect.yaml", source)
    return World(folder / "root", stubs=True, source=source)


@pytest.fixture(scope="module")
def prefect(world: World) -> Iterator[Prefect]:
    with world.servers() as prefect:
        yield prefect


class Experiment:
    """One run of its own seed, so that it shares no stage with the others."""

    def __init__(self, world: World, prefect: Prefect, seed: int) -> None:
        self.world, self.prefect = world, prefect
        self.name = f"r{seed}"
        self.asked: dict[str, Any] = {"name": self.name, "iterations": 1, "seed": seed}
        self._before = len(world.starts)
        self.id = ""

    @property
    def hold(self) -> Path:
        """What STUB_HOLD names for a stage of this run."""
        return self.world.root / f"{self.name}-hold"

    def start_held(self, **environment: str) -> None:
        """Start it, and wait until its executor does: no step of that before ``let_go(hold)``."""
        self.start(STUB_SLOW="executor", STUB_HOLD=str(self.hold), **environment)
        self.wait_for("executor:1 from 0")

    def start(self, **environment: str) -> None:
        deployment = "experiment/experiment"
        self.id = self.prefect.start(deployment, self.asked, **environment)["id"]

    def ends(self, state: str, run_count: int = 1) -> dict[str, Any]:
        run = self.prefect.wait(self.id, run_count)
        assert run["state_name"] == state, run["state"]
        return run

    def retry(self) -> None:
        done = self.prefect.retry(self.id)
        assert done["state_name"] == "Completed", done["state"]

    def wait_for(self, start: str) -> None:
        """Wait until this run has started a stage."""
        deadline = time.monotonic() + LIMIT_S
        while start not in self.world.starts[self._before :]:
            assert time.monotonic() < deadline, f"{start!r} did not come"
            time.sleep(0.05)

    def started(self) -> list[str]:
        """Starts of stages since the last look."""
        new = self.world.starts[self._before :]
        self._before += len(new)
        return new

    def states(self, stage: str) -> list[str]:
        return self.prefect.states("task_runs", f"{self.name}/{stage}")


@pytest.fixture
def experiment(world: World, prefect: Prefect, request: pytest.FixtureRequest) -> Experiment:
    return Experiment(world, prefect, request.param)


@pytest.mark.parametrize("experiment", [1], indirect=True)
def test_the_failed_stage_alone_is_repeated_from_its_checkpoint(experiment: Experiment) -> None:
    experiment.start(STUB_FAIL="executor:1:numeric")
    failed = experiment.ends("Failed")
    assert failed["state"]["message"].startswith(
        "i1/executor failed, numeric: the stub's loss became nan (log: "
    )
    assert experiment.started() == FIRST + SECOND[:5]
    experiment.retry()
    assert experiment.started() == ["executor:1 from 2", "evaluation:1 from 0"]
    for stage in ("i0/base_model", "i0/evaluation", "i1/anchor", "i1/curriculum"):
        assert experiment.states(stage) == ["Completed", "Reused"], stage
    assert experiment.states("i1/executor") == ["Completed", "Failed"]
    reused = experiment.prefect.newest("task_runs", "r1/i1/curriculum")
    artifact = experiment.world.artifact(experiment.world.identity("r1", "i1/curriculum"))
    assert reused["state"]["message"] == f"the artifact was there: {artifact}"


@pytest.mark.parametrize("experiment", [2], indirect=True)
def test_a_deleted_artifact_is_computed_again_and_its_consumers_are_not(
    experiment: Experiment,
) -> None:
    experiment.start(STUB_FAIL="evaluation:1:numeric")
    experiment.ends("Failed")
    assert experiment.started() == FIRST + SECOND
    pool = experiment.world.artifact(experiment.world.identity("r2", "i1/task_pool"))
    shutil.rmtree(pool)
    experiment.retry()
    assert experiment.started() == ["task_pool:1 from 4", "evaluation:1 from 2"]


@pytest.mark.parametrize("experiment", [3], indirect=True)
def test_consumers_of_other_bytes_are_computed_again(experiment: Experiment) -> None:
    experiment.start()
    experiment.ends("Completed")
    experiment.started()
    pool = experiment.world.artifact(experiment.world.identity("r3", "i1/task_pool"))
    shutil.rmtree(pool)
    experiment.start(STUB_SALT="other")
    experiment.ends("Completed")
    again = [line.split()[0] for line in experiment.started()]
    assert again == ["task_pool:1", "anchor_cache:1", "executor:1", "evaluation:1"]


@pytest.mark.parametrize("experiment", [4], indirect=True)
def test_a_killed_flow_process_is_seen_and_retried(experiment: Experiment) -> None:
    experiment.start_held()
    experiment.world.kill("prefect.engine")
    experiment.ends("Crashed")
    assert experiment.started() == FIRST + SECOND[:5]
    let_go(experiment.hold)
    experiment.retry()
    executor, evaluation = experiment.started()
    assert executor.startswith("executor:1 from ")
    assert evaluation == SECOND[5]


@pytest.mark.parametrize("experiment", [5], indirect=True)
def test_a_killed_worker_leaves_the_run_to_its_end_and_a_new_one_takes_the_next(
    experiment: Experiment,
) -> None:
    experiment.start_held(STUB_FAIL="evaluation:1:numeric")
    experiment.world.kill("worker", "start")
    let_go(experiment.hold)
    experiment.ends("Failed")
    assert experiment.started() == FIRST + SECOND
    assert experiment.world.cli("up").returncode == 0
    experiment.retry()
    assert experiment.started() == ["evaluation:1 from 2"]


@pytest.mark.parametrize("experiment", [6], indirect=True)
def test_a_cancelled_run_goes_on_where_it_was(experiment: Experiment) -> None:
    experiment.start_held()
    cancelling = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    experiment.prefect.call(f"/flow_runs/{experiment.id}/set_state", cancelling)
    experiment.ends("Cancelled")
    assert not [x for x in experiment.world.processes() if "stub_stages" in x]
    assert experiment.started() == FIRST + SECOND[:5]
    let_go(experiment.hold)
    experiment.retry()
    assert [line.split()[0] for line in experiment.started()] == ["executor:1", "evaluation:1"]


@pytest.mark.parametrize("experiment", [7], indirect=True)
def test_code_outside_a_stage_changes_nothing_and_its_own_code_does(
    experiment: Experiment,
) -> None:
    experiment.start(STUB_FAIL="executor:1:numeric")
    experiment.ends("Failed")
    experiment.started()
    source = experiment.world.root.parent / "source"
    add_code(source / "flows/naming.py")
    add_code(source / "tasks/reports.py")
    experiment.retry()
    assert experiment.started() == ["executor:1 from 2", "evaluation:1 from 0"]
    add_code(source / "training/algorithms/repetition.py")
    experiment.start()
    experiment.ends("Completed")
    again = ["curriculum:1 from 0", "task_pool:1 from 0", "anchor_cache:1 from 0"]
    assert experiment.started() == [*again, "executor:1 from 0", "evaluation:1 from 0"]


def add_code(path: Path) -> None:
    """Change what a module says, not what it does."""
    with path.open("a") as code:
        code.write('\nADDED = "after the run began"\n')


@pytest.mark.parametrize("experiment", [8], indirect=True)
def test_a_second_run_waits_for_the_machine(experiment: Experiment, prefect: Prefect) -> None:
    experiment.start_held()
    second = prefect.start("iteration/iteration", {"run": experiment.name, "iteration": 0})
    deadline = time.monotonic() + LIMIT_S
    while prefect.call(f"/flow_runs/{second['id']}")["state_name"] != "Late":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    let_go(experiment.hold)
    assert experiment.ends("Completed")
    first_end = prefect.call(f"/flow_runs/{experiment.id}")["end_time"]
    assert prefect.wait(second["id"])["start_time"] > first_end
