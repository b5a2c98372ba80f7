"""What MLflow is told of a run: parameters, tags, the headline numbers, small files."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tasks.comparable import comparable
from tasks.figures import PANELS, accuracy_figure, save, stages_figure
from tasks.metric_keys import SECONDS, parent_values, stage_values
from tasks.reports import flow_page
from tasks.run_groups import accuracy_charts, accuracy_title
from tasks.runs import Run, read_lines
from tasks.stage import Outcome
from tasks.summary import read_summary
from tasks.tracking import PARENT, child
from training.errors import DiskFullError

log = logging.getLogger("anchorloop")

FIGURES = "figures"
"""Folder of the figures, in the run's own and among its MLflow artifacts."""


def open_parent(run: Run, flow_run: str | None) -> None:
    """Start or continue the parent run: parameters once, tags each time."""
    run.tracker.open(PARENT, run.name, _tags(run, flow_run))
    run.tracker.params(PARENT, run.config.model_dump(mode="json"))
    run.tracker.file(PARENT, run.folder / "config.yaml")


def open_child(run: Run, iteration: int, flow_run: str | None) -> None:
    """Start or continue the child run of one outer iteration."""
    name = f"{run.name}/i{iteration}"
    tags = {**_tags(run, flow_run), "iteration": str(iteration)}
    run.tracker.open(child(iteration), name, tags)


def end_part(run: Run, part: str, error: BaseException) -> None:
    """End a part's MLflow run for an error, which a full disk must not hide."""
    with contextlib.suppress(DiskFullError):
        run.tracker.end(part, "FAILED" if isinstance(error, Exception) else "KILLED")


def report_outcomes(run: Run, iteration: int, outcomes: list[Outcome]) -> None:
    """The stages' original seconds, scores, artifacts, and which were found done."""
    part = child(iteration)
    for outcome in outcomes:
        if outcome.stage in SECONDS:
            seconds = {f"{outcome.stage}/seconds": outcome.cost_seconds}
            run.tracker.metrics(part, iteration, seconds)
        if outcome.stage == "evaluation":
            scores = stage_values("evaluation", outcome.metrics)
            run.tracker.metrics(part, iteration, scores, revise=True)
    tags = {f"artifact.{outcome.stage}": outcome.path for outcome in outcomes}
    reused = run.reused(iteration)
    run.tracker.tags(part, {**tags, "reused": ",".join(reused) or "none"})


def report_evaluation(run: Run, outcome: Outcome) -> None:
    """An evaluation outside the plan: a child run of its own, with all scores at the iteration."""
    part = f"e{outcome.identity[:12]}"
    name = f"{run.name}/i{outcome.iteration}/evaluation-{outcome.identity[:8]}"
    run.tracker.open(part, name, {**_tags(run, None), "iteration": str(outcome.iteration)})
    scores = dict(list(outcome.metrics.items())[:56])
    run.tracker.metrics(part, outcome.iteration, scores)
    run.tracker.tags(part, {"artifact.evaluation": outcome.path})
    run.tracker.end(part, "FINISHED")


def report_comparable(run: Run) -> None:
    """Tag the parent run with what the base gate says, and warn where it says no."""
    verdict = comparable(run)
    if verdict is not None:
        run.tracker.tags(PARENT, {"comparable": verdict})
        if verdict != "yes":
            log.warning("%s", verdict)


def report_row(run: Run, row: Mapping[str, Any]) -> None:
    """An iteration's headline numbers on the parent run, step = iteration."""
    run.tracker.metrics(PARENT, row["iteration"], parent_values(row), revise=True)


def report_figures(run: Run, iteration: int, outcomes: Sequence[Outcome]) -> None:
    """Draw the run's accuracy so far and the iteration's stages, and keep both in MLflow.

    A figure that cannot be drawn is missed, and never costs the run anything else.
    """
    try:
        _draw(run, iteration, outcomes)
    except Exception as error:
        log.warning("the figures of %s/i%d were not drawn: %s", run.name, iteration, error)


def _draw(run: Run, iteration: int, outcomes: Sequence[Outcome]) -> None:
    folder = run.folder / FIGURES
    stages, accuracy = folder / f"i{iteration}.png", folder / "accuracy.png"
    computed = any(not outcome.reused for outcome in outcomes)
    logs = {
        outcome.stage: read_lines(Path(outcome.path).parent / "work" / "metrics.jsonl")
        for outcome in outcomes
        if outcome.stage in PANELS
    }
    logs = {stage: lines for stage, lines in logs.items() if lines}
    if (
        logs
        and (computed or not stages.exists())
        and save(stages_figure(logs, f"{run.name}, iteration {iteration}"), stages)
    ):
        run.tracker.file(child(iteration), stages, FIGURES)
    summary = read_summary(run.folder)
    if summary and save(
        accuracy_figure(accuracy_charts(summary), accuracy_title(summary)), accuracy
    ):
        run.tracker.file(PARENT, accuracy, FIGURES)


def _version() -> str:
    try:
        return version("anchorloop")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _tags(run: Run, flow_run: str | None) -> dict[str, str]:
    config = run.config
    page = flow_page(flow_run) if flow_run else None
    links = {"mlflow.note.content": f"[Flow run in Prefect]({page})"} if page else {}
    return {
        **links,
        "run": run.name,
        "method": config.method,
        "profile": config.profile,
        "backbone": config.model.name,
        "seed": str(config.seed),
        "config_hash": run.config_hash,
        "code_version": _version(),
        "code_hash": run.code_hash,
        "sandbox": config.sandbox.isolation,
        "launcher": run.settings.launcher,
        "forked_from": run.settings.forked_from or "none",
        "image": run.launcher.image() or "none",
        "prefect_flow_run_id": flow_run or "none",
        "prefect_url": page or "none",
    }
