"""A NaN at its source in a real stage: what stops, what is kept, and that no anchor comes of it."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fault.fault_world import ASSIGNMENTS
from tests.integration.flow_world import World, mlflow_runs

RUN = ("run", "--name", "r", "--iterations", "2", *ASSIGNMENTS)
POISONED = """
from tasks import launchers

launchers.LAUNCHERS["local"] = lambda: launchers.LocalLauncher("tests.fault.poisoned_stages")
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose stages are the real ones, poisoned by an environment variable."""
    world = World(tmp_path_factory.mktemp("numeric") / "root", stubs=False)
    site = world.root / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(POISONED)
    paths = [str(site), world.environment["PYTHONPATH"]]
    world.environment["PYTHONPATH"] = os.pathsep.join(paths)
    return world


def place(world: World, entry: str) -> Path:
    """Folder of a planned stage, whether it ran or not."""
    from training.spec import StageSpec

    plan = json.loads((world.root / "runs" / "r" / "plan.json").read_text())
    return world.artifact(StageSpec(**plan[entry]).identity).parent


def fail(world: World, poison: str, entry: str) -> tuple[str, list[dict[str, Any]]]:
    """Run until the poisoned stage fails; its message and the steps that it had logged."""
    done = world.cli(*RUN, POISON=poison)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert f"{entry} failed, numeric: " in last
    assert "Traceback" not in done.stderr
    folder = place(world, entry)
    assert json.loads((folder / "work" / "failure.json").read_text())["kind"] == "numeric"
    assert not (folder / "artifact").exists()
    metrics = folder / "work" / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return last, [json.loads(line) for line in lines]


def checkpoint_of(folder: Path) -> tuple[int, Path]:
    """Steps and path of the newest checkpoint."""
    found = (folder / "work" / "checkpoints").glob("step_*")
    newest = max(found, key=lambda path: int(path.name.removeprefix("step_")))
    return int(newest.name.removeprefix("step_")), newest


@pytest.mark.system
@pytest.mark.timeout(1800)
def test_a_nan_in_loss_policy_or_reward_stops_its_stage_in_the_same_step(world: World) -> None:
    message, steps = fail(world, "reference:executor:1:2", "i1/executor")
    assert "the loss is nan on" in message
    executor = place(world, "i1/executor")
    updates = [step for step in steps if "loss" in step]
    assert len(updates) == 2, "it went on after the NaN, or stopped before it"
    assert all(math.isfinite(v) for step in steps for v in step.values() if v is not None)
    kept, checkpoint = checkpoint_of(executor)
    assert kept == len(steps)
    weights = torch.load(checkpoint / "state.pt", weights_only=False)["model"]
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    attempts = list((executor / "work" / "logs").glob("attempt_*"))
    assert len(attempts) == 1, "a numeric failure was tried again by itself"
    assert not (place(world, "i2/anchor") / "artifact").exists()
    assert mlflow_runs(world.root)["r"].info.status == "FAILED"

    message, again = fail(world, "policy:executor:1:1", "i1/executor")
    assert "log-probabilities are not finite on" in message
    assert again[: len(steps)] == steps, "it did not go on from the checkpoint"
    assert len([step for step in again if "loss" in step]) == 3
    assert not (place(world, "i2/anchor") / "artifact").exists()

    message, rewarded = fail(world, "reward:curriculum:2:1", "i2/curriculum")
    assert "the reward of candidate" in message
    assert "'r_unc': nan" in message
    assert len(rewarded) == 1
    assert (executor / "artifact").exists()
    assert checkpoint_of(place(world, "i2/curriculum"))[0] == 1
    for entry in ("i2/task_pool", "i2/executor", "i2/evaluation"):
        assert not (place(world, entry) / "artifact").exists()

    status = world.cli("status", "r")
    text = " ".join(status.stdout.split())
    assert "stopped, at i2/curriculum (numeric: the reward of candidate" in text
    assert "attempt_1/output.log" in text
    assert world.left() == []
