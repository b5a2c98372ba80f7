"""Faults 3, 4, 7, 12, 14, 16, 19, 20 and 24: what happens to the process that drives a run."""

import json
import os
import shutil
import signal

import pytest

from tests.fault.conftest import Copy
from tests.fault.fault_world import RUN, STAGES, FaultWorld, same_run, waits
from tests.integration.flow_world import mlflow_runs

CURRICULUM, POOL, EXECUTOR, EVALUATION = (
    f"i1/{name}" for name in ("curriculum", "task_pool", "executor", "evaluation")
)
pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_killed_when_a_stage_is_published_and_nobody_knows_of_it(
    copy: Copy, reference: FaultWorld
) -> None:
    world = copy([EXECUTOR])
    killed = world.cli(*RUN, FAULT=f"die_after_publishing:{EXECUTOR}")
    assert killed.returncode == -9
    assert world.store.verify(world.identities[EXECUTOR]) is not None
    assert EXECUTOR.partition("/")[2] not in world.stages.read_text()
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    assert f"{EXECUTOR} reused" in done.stderr
    assert world.attempts(EXECUTOR) == 1
    same_run(world, reference)


def test_stopped_by_a_request_while_a_second_start_is_refused(
    copy: Copy, reference: FaultWorld
) -> None:
    world = copy([EXECUTOR])
    second = []

    def in_the_middle() -> bool:
        if not waits(world.root / "go_on"):
            return False
        second.append(world.cli(*RUN, "--on-busy", "refuse"))
        return True

    # the stage waits at its third step for as long as the second start needs
    wait = f"wait_in_step:3,{world.root / 'go_on'}"
    assert world.signalled(signal.SIGTERM, in_the_middle, *RUN, FAULT=wait) == 130
    (world.root / "go_on").touch()
    assert second[0].returncode == 2
    assert "is already driven by process" in second[0].stderr
    assert world.left() == []
    assert mlflow_runs(world.root)["r"].info.status == "KILLED"
    assert world.failure(EXECUTOR)["kind"] == "interrupted"
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    assert world.attempts(EXECUTOR) == 2
    same_run(world, reference)


def test_killed_in_a_stage_and_started_again_at_once(copy: Copy, reference: FaultWorld) -> None:
    """The locks of the run and the stage are free at once, and the stage's process is gone."""
    world = copy([EXECUTOR, EVALUATION])
    never = world.root / "never"  # else the stage may be done before the kill comes
    world.killed(lambda: waits(never), *RUN, FAULT=f"wait_in_step:3,{never}")
    done = world.cli(*RUN, "--on-busy", "refuse")
    assert done.returncode == 0, done.stderr
    assert world.attempts(EXECUTOR) == 2
    reused = {
        f"i{line['iteration']}/{line['stage']}"
        for line in map(json.loads, world.stages.read_text().splitlines())
        if line["reused"]
    }
    assert reused == set(STAGES) - {EXECUTOR, EVALUATION}
    assert mlflow_runs(world.root)["r/i1"].data.tags["reused"] == (
        "anchor,curriculum,task_pool,anchor_cache"
    )
    same_run(world, reference)


@pytest.fixture(scope="module")
def finished(
    reference: FaultWorld, prefect: str, tmp_path_factory: pytest.TempPathFactory
) -> FaultWorld:
    """A run whose driver was killed between two iterations, and that was started again."""
    world = reference.copy(tmp_path_factory.mktemp("finished") / "root", prefect)
    assert world.cli(*RUN, FAULT="die_between_iterations:0").returncode == -9
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    return world


def test_killed_between_two_iterations(finished: FaultWorld, reference: FaultWorld) -> None:
    assert [finished.attempts(entry) for entry in STAGES] == [1] * len(STAGES)
    same_run(finished, reference)


def test_a_deleted_artifact_is_computed_again_alone(
    finished: FaultWorld, reference: FaultWorld
) -> None:
    """Also after a person or a clean-up took it away behind the run's back."""
    before = {entry: finished.attempts(entry) for entry in STAGES}
    shutil.rmtree(finished.place(POOL) / "artifact")
    done = finished.cli(*RUN)
    assert done.returncode == 0, done.stderr
    after = {entry: finished.attempts(entry) for entry in STAGES}
    assert after == {**before, POOL: before[POOL] + 1}
    same_run(finished, reference)


def test_a_changed_artifact_is_set_aside_and_computed_again(
    finished: FaultWorld, reference: FaultWorld
) -> None:
    before = {entry: finished.attempts(entry) for entry in STAGES}
    tasks = finished.place(POOL) / "artifact" / "tasks.jsonl"
    content = tasks.read_bytes()
    tasks.write_bytes(content.replace(b"0", b"1", 1))
    done = finished.cli(*RUN)
    assert done.returncode == 0, done.stderr
    assert f"{POOL} is damaged and will be computed again" in done.stderr
    after = {entry: finished.attempts(entry) for entry in STAGES}
    assert after == {**before, POOL: before[POOL] + 1}
    assert tasks.read_bytes() == content
    same_run(finished, reference)


def test_another_configuration_is_refused_with_the_difference(finished: FaultWorld) -> None:
    before = finished.stages.read_text()
    refused = finished.cli(*RUN, "--set", "executor.alpha=0.5")
    assert refused.returncode == 2
    assert "executor.alpha: 0.6 → 0.5" in refused.stderr
    assert "anchorloop fork r --name NEW" in refused.stderr
    assert finished.stages.read_text() == before


def test_out_of_memory_in_the_executor_keeps_the_curriculum(
    copy: Copy, reference: FaultWorld
) -> None:
    """Raised where CUDA would raise it; tried once, not again, with what helps in the message."""
    world = copy([CURRICULUM, EXECUTOR])
    failed = world.cli(*RUN, FAULT="out_of_memory:3")
    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert f"{EXECUTOR} failed, out_of_memory: OutOfMemoryError: CUDA out of memory" in last
    assert "optimiser.micro_batch_rows" in last
    assert "rollout.wave_rows" in last
    assert "Traceback" not in failed.stderr
    assert world.attempts(EXECUTOR) == 1
    kept = (world.place(CURRICULUM) / "artifact" / "model" / "model.safetensors").stat()
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    assert world.attempts(CURRICULUM) == 1
    assert os.stat(world.place(CURRICULUM) / "artifact" / "model" / "model.safetensors") == kept
    same_run(world, reference)
