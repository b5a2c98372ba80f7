"""The numbers of a run, one row an outer iteration; iteration 0 is the base model."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.comparable import comparable
from tasks.runs import Run
from training.store import write_atomic

SOURCES: dict[str, tuple[str, str]] = {
    "greedy": ("evaluation", "greedy"),
    "mean_at_8": ("evaluation", "mean_at_8"),
    "v_adv": ("executor", "v_adv"),
    "positive_gap_share": ("curriculum", "positive_gap_share"),
    "unresolved_share": ("executor", "unresolved_share"),
    "format_valid_share": ("curriculum", "format_valid_share"),
    "mean_tool_calls": ("evaluation", "mean_tool_calls"),
    "distinct_task_share": ("task_pool", "distinct_task_share"),
    "top_answer_share": ("evaluation", "top_answer_share"),
    "in_grammar_share": ("evaluation", "in_grammar_share"),
    "held_out_overlap": ("evaluation", "held_out_overlap"),
    "math_avg": ("evaluation", "math_avg"),
    "general_avg": ("evaluation", "general_avg"),
}
"""Column → the stage and the metric of its result that it shows; shares are fractions."""


def iteration_row(
    iteration: int, outcomes: Iterable[Mapping[str, Any]], samples: int = 8
) -> dict[str, Any]:
    """One row from the recorded outcomes of an iteration's stages; null where not defined.

    ``samples`` is the k of the evaluation's mean@k, which gets a column of its own name.
    ``seconds`` is what the stages cost originally, ``paid_seconds`` the wall time spent here.
    """
    latest: dict[str, Mapping[str, Any]] = {}
    paid = 0.0
    for outcome in outcomes:
        latest[outcome["stage"]] = outcome
        paid += outcome["seconds"]
    row: dict[str, Any] = {"iteration": iteration}
    columns = dict(SOURCES)
    if samples:
        columns[f"mean_at_{samples}"] = ("evaluation", f"mean_at_{samples}")
    for column, (stage, key) in columns.items():
        row[column] = latest[stage]["metrics"].get(key) if stage in latest else None
    row["alarms"] = sum(outcome.get("alarms", 0) for outcome in latest.values())
    row["seconds"] = sum(outcome["cost_seconds"] for outcome in latest.values())
    row["paid_seconds"] = paid
    return row


def older_anchor(run: Run, iteration: int) -> bool:
    """Whether R_ref compares two different models: the anchor is not this iteration's Executor.

    So it is where the anchor is not refreshed every iteration (docs/method.md section 1).
    """
    inputs = [e.spec.inputs for e in run.iteration(iteration) if e.spec.stage == "curriculum"]
    return any(i.get("frozen", i["executor"]) != i["executor"] for i in inputs)


def write_summary(run: Run) -> dict[str, Any]:
    """Write summary.json from the iterations whose stages are all recorded; returns it."""
    rows = []
    for iteration in range(run.config.iterations + 1):
        mine = run.outcomes(iteration)
        recorded = {outcome["identity"] for outcome in mine}
        if all(entry.identity in recorded for entry in run.iteration(iteration)):
            rows.append(iteration_row(iteration, mine, run.config.evaluation.samples))
    config = run.config
    summary = {
        "run": run.name,
        "method": config.method,
        "profile": config.profile,
        "seed": config.seed,
        "planned_iterations": config.iterations,
        "comparable": comparable(run) if rows else None,
        "older_anchor": [t for t in range(config.iterations + 1) if older_anchor(run, t)],
        "iterations": rows,
    }
    write_atomic(run.folder / "summary.json", json.dumps(summary, indent=1))
    return summary


def read_summary(folder: Path) -> dict[str, Any] | None:
    """summary.json of a run folder, or None before there is one."""
    try:
        return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
