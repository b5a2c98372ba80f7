"""What Prefect shows of a run beside its states: links to MLflow and artifacts, one table an
iteration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks import reports
from tasks.runs import Run
from tasks.stage import Outcome
from tasks.summary import older_anchor
from tasks.tracking import PARENT

SHOWN: dict[str, tuple[str, ...]] = {
    "base_model": ("loss",),
    "curriculum": ("positive_gap_share", "format_valid_share", "unresolved_share"),
    "task_pool": ("tasks", "distinct_task_share"),
    "anchor_cache": ("groups",),
    "executor": ("v_adv", "unresolved_share", "mean_tool_calls"),
    "evaluation": ("greedy", "mean_at_8", "mean_tool_calls", "top_answer_share"),
}
"""Numbers of a stage in the iteration's table; all of them are in MLflow and summary.json."""

_linked: set[tuple[str, str]] = set()


def show_tracking(run: Run, part: str, flow_run: str | None) -> None:
    """Link a flow run to its MLflow run, once, as soon as the tracking server has named it."""
    if flow_run is None or (flow_run, part) in _linked:
        return
    address = run.tracking_address(part)
    if address is not None:
        name = run.name if part == PARENT else f"{run.name}/{part}"
        own = () if part == PARENT else (part,)
        key = reports.artifact_key(run.name, *own, "mlflow")
        if reports.link(key, address, f"MLflow: {name}"):
            _linked.add((flow_run, part))


def show_reused(run: Run, outcome: Outcome) -> None:
    """Link a reused stage to the artifact that was there."""
    key = reports.artifact_key(run.name, f"i{outcome.iteration}", outcome.stage, "artifact")
    text = f"Artifact {outcome.identity[:12]}, computed in {outcome.cost_seconds:.1f} s"
    reports.link(key, Path(outcome.path).as_uri(), f"{text}: {outcome.path}")


def show_iteration(run: Run, row: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """The table of an iteration: a line a stage, its numbers beside what it took."""
    iteration = row["iteration"]
    lines = [
        {
            "stage": outcome.stage,
            "state": "reused" if outcome.reused else "computed",
            "numbers": ", ".join(_numbers(outcome)),
            "alarms": outcome.alarms,
            "paid s": outcome.seconds,
            "cost s": outcome.cost_seconds,
            "artifact": outcome.identity[:12],
        }
        for outcome in outcomes
    ]
    scores = {key: row.get(key) for key in ("greedy", "mean_at_8")}
    shown = [f"{key} {value:.4g}" for key, value in scores.items() if value is not None]
    title = f"{run.name}, iteration {iteration}: {', '.join(shown) or 'not evaluated'}"
    if older_anchor(run, iteration):
        title += "; its reference gap compares two different models, the anchor is an older one"
    reports.table(reports.artifact_key(run.name, f"i{iteration}"), lines, title)


def _numbers(outcome: Outcome) -> list[str]:
    values = {key: outcome.metrics.get(key) for key in SHOWN.get(outcome.stage, ())}
    return [f"{key} {value:.4g}" for key, value in values.items() if value is not None]
