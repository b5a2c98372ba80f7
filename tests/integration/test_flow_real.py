"""The whole loop with the real stages: two short iterations, and a kill -9 in the middle."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.flow_world import World, history, mlflow_runs

SHORT = {
    "curriculum.steps": 2,
    "curriculum.batch_size": 8,
    "executor.steps": 6,
    "evaluation.limit": 16,
    "gate.min_mean_at_k": 0,
    "gate.max_top_answer_share": 1,
    "checkpoints.every": 1,
}
ASSIGNMENTS = [part for key, value in SHORT.items() for part in ("--set", f"{key}={value}")]
ARGUMENTS = ("run", "--name", "r", "--iterations", "2", *ASSIGNMENTS)


def weights(world: World, identity: str) -> str:
    content = (world.artifact(identity) / "model" / "model.safetensors").read_bytes()
    return hashlib.sha256(content).hexdigest()


def outcomes(world: World) -> list[dict[str, Any]]:
    lines = (world.root / "runs" / "r" / "stages.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("real") / "root", stubs=False)
    done = world.cli(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
    return world


@pytest.mark.timeout(1800)
def test_two_iterations_end_to_end(finished: World) -> None:
    summary = finished.summary("r")
    assert [row["iteration"] for row in summary["iterations"]] == [0, 1, 2]
    for row in summary["iterations"]:
        for key in ("greedy", "mean_at_8", "top_answer_share"):
            assert 0 <= row[key] <= 1
    for row in summary["iterations"][1:]:
        assert row["v_adv"] >= 0
        shares = ("positive_gap_share", "unresolved_share", "format_valid_share")
        for key in (*shares, "distinct_task_share", "in_grammar_share"):
            assert row[key] is None or 0 <= row[key] <= 1, key
    base, first, last = (
        weights(finished, finished.identity("r", entry))
        for entry in ("i0/base_model", "i1/executor", "i2/executor")
    )
    assert base != first != last
    runs = mlflow_runs(finished.root)
    assert [step for step, _ in history(finished.root, runs["r"], "greedy")] == [0, 1, 2]
    for t in (1, 2):
        losses = history(finished.root, runs[f"r/i{t}"], "executor/included_share")
        assert [step for step, _ in losses] == list(range(SHORT["executor.steps"]))
        assert len(runs[f"r/i{t}"].data.metrics) <= 56
    assert runs["r"].data.params["curriculum.steps"] == "2"
    assert finished.processes() == []


@pytest.mark.timeout(1800)
def test_kill_in_the_executor_stage_is_bit_identical(finished: World, tmp_path: Path) -> None:
    """Finished stages are taken over, the killed one resumes, and the weights are the same."""
    world = World(tmp_path / "root", stubs=False)
    taken = outcomes(finished)
    until = next(n for n, x in enumerate(taken) if (x["iteration"], x["stage"]) == (1, "executor"))
    for outcome in taken[:until]:
        source = finished.artifact(outcome["identity"]).parent
        shutil.copytree(source, world.artifact(outcome["identity"]).parent)
    identity = taken[until]["identity"]
    place = world.artifact(identity).parent
    world.killed(lambda: any((place / "work" / "checkpoints").glob("step_[2-5]")), *ARGUMENTS)
    assert not (place / "artifact").exists()
    done = world.cli(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert (place / "work" / "logs" / "attempt_2").exists()
    for t in (1, 2):
        ours, theirs = (w.identity("r", f"i{t}/executor") for w in (world, finished))
        assert ours == theirs
        assert weights(world, ours) == weights(finished, theirs)
    reused = {(x["iteration"], x["stage"]) for x in outcomes(world) if x["reused"]}
    assert reused >= {(0, "base_model"), (1, "curriculum")}
    child = mlflow_runs(world.root)["r/i1"]
    steps = [step for step, _ in history(world.root, child, "executor/included_share")]
    assert steps == list(range(SHORT["executor.steps"]))
    assert child.data.tags["reused"] == "anchor,curriculum,task_pool,anchor_cache"
