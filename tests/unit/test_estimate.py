"""Time estimates from the records of earlier runs, and the sizes that preflight reckons with."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.estimate import estimate, trajectories
from flows.memory import disk_bytes, gpu_bytes, machine_bytes, weight_bytes
from training.config import ExperimentConfig
from training.config_load import load_config

GB = 1e9


def config(**changes: Any) -> ExperimentConfig:
    return load_config("qwen3-4b", "anchorloop", changes)


def record(runs: Path, name: str, past: ExperimentConfig, **seconds: float) -> None:
    """A run that finished these stages in so many seconds."""
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(past.model_dump(mode="json")))
    lines = [
        {
            "iteration": 1,
            "stage": stage,
            "identity": f"{name}-{stage}",
            "cost_seconds": spent,
            "metrics": {"engine_tokens_per_second": 2000.0} if stage == "evaluation" else {},
        }
        for stage, spent in seconds.items()
    ]
    (folder / "stages.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines + lines))


def test_without_records_nothing_is_made_up(tmp_path: Path) -> None:
    assert estimate(config(), tmp_path).startswith("no measured rate yet")
    record(tmp_path, "other", load_config("mimo-7b"), curriculum=100, executor=100)
    assert estimate(config(), tmp_path).startswith("no measured rate yet")


def test_measured_stages_are_scaled_to_what_is_asked(tmp_path: Path) -> None:
    short = config(curriculum={"steps": 2}, executor={"steps": 4}, iterations=1)
    record(tmp_path, "short", short, curriculum=100, executor=60, evaluation=20)
    # 16 times the Curriculum's steps and 32 times the Executor's, three times over
    hours = 3 * (16 * 100 + 32 * 60 + 20) / 3600
    said = estimate(config(), tmp_path)
    assert said.startswith(f"about {hours:.1f} h for 3 outer iterations, {8 * hours:.1f} GPU hours")
    assert "2000 measured tokens/s" in said


def test_what_was_not_measured_is_bounded_by_the_speed(tmp_path: Path) -> None:
    record(tmp_path, "base", config(), evaluation=20)
    said = estimate(config(), tmp_path)
    assert said.startswith("at most ")
    assert "the longest answers: curriculum, executor" in said


@pytest.mark.parametrize(
    ("changes", "stage", "count"),
    [
        ({}, "curriculum", 32 * 64 * 17),
        (
            {"curriculum": {"lambda_ref": 0}, "anchor": {"cache": "none"}},
            "curriculum",
            32 * 64 * 17,
        ),
        ({}, "anchor_cache", 0),
        ({"anchor": {"cache": "resample"}}, "anchor_cache", 32 * 64 * 8),
        ({}, "executor", 128 * 64 * 8),
        ({"anchor": {"cache": "none"}}, "executor", 128 * 64 * 16),
        ({"executor": {"reference": "second_group"}}, "executor", 128 * 64 * 16),
        ({"executor": {"reference": "none"}}, "executor", 128 * 64 * 8),
    ],
)
def test_trajectories_of_a_stage(changes: dict[str, Any], stage: str, count: int) -> None:
    assert trajectories(config(**changes), stage) == count


def test_sizes_of_the_profiles() -> None:
    assert weight_bytes(config().model) == 16 * GB
    assert weight_bytes(load_config("mimo-7b").model) == 28 * GB
    # three checkpoints of 16 bytes a parameter, seven models, half as much again
    assert disk_bytes(config()) == pytest.approx(1.5 * (3 * 64 + 7 * 16) * GB, rel=0.01)
    for profile in ("qwen3-4b", "mimo-7b"):
        for gpus in (8, 4, 2, 1):
            asked = load_config(profile, "anchorloop", {"trainer": {"gpus_per_node": gpus}})
            assert gpu_bytes(asked) < 80 * GB, (profile, gpus)
    one = {"trainer": {"gpus_per_node": 1}}
    assert machine_bytes(config(**one)) > machine_bytes(config()) + 60 * GB
