"""The whole loop with the real stages: two short iterations. Faults: ``tests/fault``."""

import hashlib
from pathlib import Path

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


@pytest.mark.timeout(1800)
def test_two_iterations_end_to_end(tmp_path: Path) -> None:
    finished = World(tmp_path / "root", stubs=False)
    done = finished.cli(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
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
    assert finished.left() == []
