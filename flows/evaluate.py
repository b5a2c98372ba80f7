"""Evaluate the Executor of one iteration of a run, on other benchmarks or settings if given."""

from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from pydantic import ValidationError

from flows.failures import in_one_sentence
from flows.parameters import Iteration
from tasks import reports, tracked
from tasks.heartbeat import beating
from tasks.runs import Run, RunError, driving
from tasks.stage import run_stage
from tasks.todo import must_run
from tasks.zombies import claim
from training.config import Evaluation, ExperimentConfig
from training.config_load import explain, given, merge, optional_model
from training.errors import ConfigError
from training.plan import PlanEntry, plan

EvaluationOverrides = optional_model(Evaluation)


@task(
    name="evaluation",
    task_run_name="{run}/i{iteration}/evaluation",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def evaluation_task(run: str, iteration: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Run or reuse the evaluation stage with these settings; returns its metrics."""
    with driving(run) as opened:
        entry = evaluation_entry(opened, iteration, settings)
        key = reports.artifact_key(run, f"i{iteration}", "evaluation", entry.identity[:8])
        with reports.ProgressBar(key) as bar:
            outcome = run_stage(opened, entry, bar)
        rows = [{"metric": name, "value": value} for name, value in outcome.metrics.items()]
        reports.table(f"{key}-scores", rows, f"Evaluation of {run}, iteration {iteration}")
        tracked.report_evaluation(opened, outcome)
    return outcome.metrics


@flow(name="evaluate", flow_run_name="{run}/i{iteration}/evaluate", persist_result=False)
@in_one_sentence
def evaluate(
    run: str,
    iteration: Iteration,
    settings: EvaluationOverrides | None = None,  # type: ignore[valid-type]
) -> dict[str, Any]:
    """Evaluate the Executor of an iteration; returns the metrics of the evaluation stage.

    Args:
        run: Name of an existing run.
        iteration: Whose Executor (0 = base model).
        settings: What differs from the run's own evaluation settings; empty fields keep them.

    Raises RunError when that Executor is not in the store, ConfigError for wrong settings.
    """
    with beating(), driving(run) as opened:
        claim(opened)
        entry = evaluation_entry(opened, iteration, given(settings))
        specs = [(e.identity, e.spec) for e in (*opened.entries, entry)]
        lacking = must_run(specs, opened.store.found)
        absent = [n for n, i in entry.spec.inputs.items() if i in lacking]
        if any(opened.store.verify(entry.spec.inputs[name]) for name in absent):
            raise RunError(
                f"the {' and the '.join(absent)} of iteration {iteration} of run '{run}' went with "
                "`anchorloop clean`; a run of another name with these settings computes it anew"
            )
        if absent:
            raise RunError(
                f"run '{run}' has no {' and no '.join(absent)} of iteration {iteration} yet; "
                "run the experiment first"
            )
        tracked.open_parent(opened, str(runtime.flow_run.id or "") or None)
        metrics: dict[str, Any] = evaluation_task(run, iteration, given(settings))
    return metrics


def evaluation_entry(run: Run, iteration: int, settings: dict[str, Any]) -> PlanEntry:
    """The plan's evaluation of that iteration with other settings. Raises ConfigError."""
    run.entry(iteration, "evaluation")
    asked = merge(run.config.model_dump(mode="json"), {"evaluation": settings})
    try:
        entries = plan(ExperimentConfig.model_validate(asked), run.settings.stage_image)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    wanted = (iteration, "evaluation")
    return next(e for e in entries if (e.spec.iteration, e.spec.stage) == wanted)
