"""One outer iteration of a run: its stages in order, then its row of the summary."""

import logging
from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State

from tasks import reports, tracked
from tasks.heartbeat import beating
from tasks.runs import Run, RunError, driving
from tasks.stage import Outcome, StageFailed, run_stage
from tasks.summary import iteration_row, write_summary
from tasks.tracking import child

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
        bar = reports.ProgressBar(reports.artifact_key(run, f"i{iteration}", stage))
        outcome = run_stage(opened, opened.entry(iteration, stage), bar)
    if outcome.reused:
        return Completed(name="Reused", message=f"artifact {outcome.identity[:12]} was there")
    return {"identity": outcome.identity, "path": outcome.path}


@flow(name="iteration", flow_run_name="{run}/i{iteration}", persist_result=False)
def iteration(run: str, iteration: int) -> dict[str, Any]:
    """Run outer iteration ``iteration`` (0 = base model) of an existing run; returns its row.

    Raises RunError when an earlier iteration that it builds on is not there.
    """
    with beating(), driving(run) as opened:
        _require_inputs(opened, iteration)
        flow_run = str(runtime.flow_run.id or "") or None
        tracked.open_parent(opened, flow_run)
        tracked.open_child(opened, iteration, flow_run)
        try:
            before = len(opened.outcomes(iteration))
            for entry in opened.iteration(iteration):
                stage_task(run, iteration, entry.spec.stage)
            outcomes = [Outcome(**line) for line in opened.outcomes(iteration)[before:]]
            tracked.report_outcomes(opened, iteration, outcomes)
        except BaseException as error:
            ended = "FAILED" if isinstance(error, Exception) else "KILLED"
            opened.tracker.end(child(iteration), ended)
            raise
        samples = opened.config.evaluation.samples
        row = iteration_row(iteration, opened.outcomes(iteration), samples)
        write_summary(opened)
        tracked.report_row(opened, row)
        opened.tracker.end(child(iteration), "FINISHED")
        _show(opened, row, outcomes)
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


def _show(run: Run, row: dict[str, Any], outcomes: list[Outcome]) -> None:
    key = reports.artifact_key(run.name, f"i{row['iteration']}")
    stages = [
        {
            "stage": outcome.stage,
            "state": "reused" if outcome.reused else "computed",
            "paid s": outcome.seconds,
            "cost s": outcome.cost_seconds,
            "artifact": outcome.identity[:12],
        }
        for outcome in outcomes
    ]
    reports.table(f"{key}-stages", stages, f"Stages of {run.name}, iteration {row['iteration']}")
    reports.table(key, [row], f"Numbers of {run.name}, iteration {row['iteration']}")
    address = run.tracking_address(child(row["iteration"]))
    if address:
        reports.link(f"{key}-mlflow", address, f"MLflow: {run.name}/i{row['iteration']}")
