"""How long a run will take, judged by stages of the same model that finished on this machine."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks.runs import read_lines
from training.config import ExperimentConfig

_STAGES = ("curriculum", "anchor_cache", "executor", "evaluation")
"""Stages of an iteration that take time."""


@dataclass
class Rates:
    """What finished stages showed.

    `spent` holds seconds and sampled trajectories by stage, `evaluation` the seconds of each
    finished evaluation with the same settings, `speeds` the tokens a second of engines.
    """

    spent: dict[str, tuple[float, int]] = field(default_factory=dict)
    evaluations: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)


def estimate(config: ExperimentConfig, runs: Path) -> str:
    """One sentence: the time of all outer iterations, GPU hours, and what they are judged by."""
    if not config.iterations:
        return "no outer iteration is asked for"
    rates = measured(config, runs)
    seconds, rough, unknown = 0.0, [], []
    for stage in _STAGES:
        if trajectories(config, stage) == 0 and stage != "evaluation":
            continue
        found = _seconds(config, stage, rates)
        if found is None:
            unknown.append(stage)
            continue
        seconds += found[0]
        if not found[1]:
            rough.append(stage)
    if len(unknown) == len(_STAGES) or not seconds:
        return (
            "no measured rate yet: no stage of this model has finished here with these limits; "
            "the evaluation of the base model will give one"
        )
    words = f"{'at most' if rough else 'about'} {_duration(config.iterations * seconds)}"
    words += f" for {config.iterations} outer iterations"
    if config.trainer.backend == "verl":
        gpus = config.trainer.nodes * config.trainer.gpus_per_node
        words += f", {config.iterations * seconds / 3600 * gpus:.1f} GPU hours"
    if rates.speeds:
        words += f", at {sum(rates.speeds) / len(rates.speeds):.0f} measured tokens/s"
    if rough:
        words += f"; not measured yet, taken with the longest answers: {', '.join(rough)}"
    if unknown:
        words += f"; without {', '.join(unknown)}, not measured yet"
    return words


def trajectories(config: ExperimentConfig, stage: str) -> int:
    """Trajectories that a stage of one iteration samples at most."""
    size, tasks = config.rollout.group_size, config.curriculum.steps * config.curriculum.batch_size
    if stage == "curriculum":
        settings = config.curriculum
        referenced = settings.lambda_ref > 0 or settings.diagnostic_reference
        return tasks * (1 + size * (1 + referenced))
    anchored = config.executor.reference == "anchor"
    if stage == "anchor_cache":
        return tasks * size if anchored and config.anchor.cache == "resample" else 0
    if stage == "executor":
        second = config.executor.reference == "second_group"
        live = second or (anchored and config.anchor.cache == "none")
        return config.executor.steps * config.curriculum.batch_size * size * (1 + live)
    return 0


def measured(config: ExperimentConfig, runs: Path) -> Rates:
    """Rates of finished stages with this model, backend, number of GPUs and limits."""
    rates, seen = Rates(), set[str]()
    for past, outcome in _outcomes(config, runs):
        if outcome["identity"] in seen:
            continue
        seen.add(outcome["identity"])
        stage, seconds = outcome["stage"], float(outcome["cost_seconds"])
        speed = outcome["metrics"].get("engine_tokens_per_second")
        if speed:
            rates.speeds.append(speed)
        if stage == "evaluation":
            if past.evaluation == config.evaluation:
                rates.evaluations.append(seconds)
        elif count := trajectories(past, stage):
            before = rates.spent.get(stage, (0.0, 0))
            rates.spent[stage] = (before[0] + seconds, before[1] + count)
    return rates


def _seconds(config: ExperimentConfig, stage: str, rates: Rates) -> tuple[float, bool] | None:
    """Seconds of one iteration's stage, and whether it was measured; None: nothing to judge by."""
    if stage == "evaluation":
        found = rates.evaluations
        return (sum(found) / len(found), True) if found else None
    count = trajectories(config, stage)
    if stage in rates.spent:
        seconds, past = rates.spent[stage]
        return count * seconds / past, True
    if rates.speeds:
        longest = config.rollout.max_context_tokens
        return count * longest * len(rates.speeds) / sum(rates.speeds), False
    return None


def _outcomes(
    config: ExperimentConfig, runs: Path
) -> Iterable[tuple[ExperimentConfig, dict[str, Any]]]:
    for file in sorted(runs.glob("*/stages.jsonl")):
        try:
            stored = yaml.safe_load(file.with_name("config.yaml").read_text(encoding="utf-8"))
            past = ExperimentConfig.model_validate(stored)
        except (OSError, ValueError):  # of an older version, or half written
            continue
        if _place(past) == _place(config):
            yield from ((past, outcome) for outcome in read_lines(file))


def _place(config: ExperimentConfig) -> str:
    """What decides the rates."""
    trainer, rollout = config.trainer, config.rollout
    where = (trainer.backend, trainer.nodes, trainer.gpus_per_node, trainer.gpus_per_copy)
    limits = (rollout.tool, rollout.max_turns, rollout.max_turn_tokens, rollout.max_context_tokens)
    return json.dumps([config.model.model_dump(mode="json"), where, limits])


def _duration(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
