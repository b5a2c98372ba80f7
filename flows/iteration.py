"""One outer iteration of a run: its stages in order, then its row of the summary."""

import logging
from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State

from flows.failures import in_one_sentence
from flows.parameters import Iteration
from tasks import pages, reports, tracked
from tasks.heartbeat import beating
from tasks.runs import Run, RunError, driving
from tasks.stage import Outcome, StageFailed, run_stage
from tasks.summary import iteration_row, write_summary
from tasks.tracking import child
from tasks.zombies import claim

log = logging.getLogger("anchorloop")


def _transient(_task: Any, _task_run: Any, state: State) -> bool:
    return isinstance(state.data, StageFailed) and state.data.again


@task(
    name="stage",
    task_run_name="{run}/i{iteration}/{stage}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=_transient,
)
def stage_task(run: str, iteration: int, stage: str) -> State[Any] | dict[str, str]:
    """Run or reuse one stage; a reused one ends in the state Reused. Raises StageFailed."""
    with driving(run) as opened:
        key = reports.artifact_key(run, f"i{iteration}", stage)
        entry = opened.entry(iteration, stage)
        warn = reports.AlarmPage(key, f"{run}/{entry.name}")
        with reports.ProgressBar(key) as bar:
            outcome = run_stage(opened, entry, bar, warn)
        if outcome.reused:
            pages.show_reused(opened, outcome)
    if outcome.reused:
        return Completed(name="Reused", message=f"the artifact was there: {outcome.path}")
    return {"identity": outcome.identity, "path": outcome.path}


@flow(name="iteration", flow_run_name="{run}/i{iteration}", persist_result=False)
@in_one_sentence
def iteration(run: str, iteration: Iteration) -> dict[str, Any]:
    """Run one outer iteration of an existing run; returns its row.

    Args:
        run: Name of the run.
        iteration: Which one; 0 is the base model and its evaluation.

    Raises RunError when an earlier iteration that it builds on is not there.
    """
    with beating(), driving(run) as opened:
        claim(opened)
        _require_inputs(opened, iteration)
        flow_run = str(runtime.flow_run.id or "") or None
        tracked.open_parent(opened, flow_run)
        tracked.open_child(opened, iteration, flow_run)
        try:
            before = len(opened.outcomes(iteration))
            for entry in opened.iteration(iteration):
                pages.show_tracking(opened, child(iteration), flow_run)
                stage_task(run, iteration, entry.spec.stage)
            outcomes = [Outcome(**line) for line in opened.outcomes(iteration)[before:]]
            tracked.report_outcomes(opened, iteration, outcomes)
        except BaseException as error:
            tracked.end_part(opened, child(iteration), error)
            raise
        samples = opened.config.evaluation.samples
        row = iteration_row(iteration, opened.outcomes(iteration), samples)
        write_summary(opened)
        tracked.report_row(opened, row)
        tracked.report_figures(opened, iteration, outcomes)
        opened.tracker.end(child(iteration), "FINISHED")
        pages.show_tracking(opened, child(iteration), flow_run)
        pages.show_iteration(opened, row, outcomes)
    return row


def _require_inputs(run: Run, iteration: int) -> None:
    entries = run.iteration(iteration)
    if not entries:
        raise RunError(
            f"run '{run.name}' has iterations 0 to {run.config.iterations}, not {iteration}"
        )
    made_here = {entry.identity for entry in entries}
    lacking = run.must_run()
    for entry in entries:
        if entry.identity not in lacking:
            continue
        for name, identity in entry.spec.inputs.items():
            if identity not in made_here and identity in lacking:
                raise RunError(
                    f"{entry.name} needs '{name}' of an earlier iteration, which is not in the "
                    f"store; run the experiment '{run.name}', which makes what is missing"
                )
