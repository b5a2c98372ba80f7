"""An experiment: the base model and its evaluation, then T outer iterations, one after another."""

from typing import Any

from prefect import flow, runtime

from flows.failures import in_one_sentence
from flows.iteration import iteration as iteration_flow
from flows.naming import default_name, resolve
from flows.parameters import Address, Hours, Iterations, Method, Profile, Seed, Where
from tasks import pages, tracked
from tasks.forks import create_fork
from tasks.heartbeat import beating
from tasks.restart import start_again
from tasks.runs import OnBusy, create, driving
from tasks.summary import write_summary
from tasks.tracking import PARENT
from tasks.zombies import claim, close_zombies
from training.base_models.gate import base_gate
from training.config import ExperimentConfig
from training.config_load import Overrides, given


def _flow_run_name() -> str:
    asked = runtime.flow_run.parameters
    return asked.get("name") or default_name(asked["profile"], asked["method"], asked["seed"])


@flow(name="experiment", flow_run_name=_flow_run_name, persist_result=False)
@in_one_sentence
def experiment(
    profile: Profile = "tiny",
    method: Method = "anchorloop",
    seed: Seed = 0,
    iterations: Iterations | None = None,
    name: str | None = None,
    overrides: Overrides | None = None,  # type: ignore[valid-type]
    from_stage: str | None = None,
    force_stage: str | None = None,
    on_busy: OnBusy = "wait",
    launcher: Where | None = None,
    image: str | None = None,
    stage_hours: Hours = 72.0,
    study: str = "anchorloop",
    tracking_uri: Address | None = None,
) -> dict[str, Any]:
    """Run an experiment, or go on with it; returns its summary.

    Args:
        profile: Model and scale.
        method: What is compared.
        seed: All randomness derives from it.
        iterations: T, outer iterations; empty means what profile and method say.
        name: Name of the run; empty means profile-method-seed. A name that exists goes on with
            that run.
        overrides: Any other value of the configuration; what is left empty is as profile and
            method say.
        from_stage: Compute this stage (like i2/executor) and all behind it again.
        force_stage: Compute this stage alone again.
        on_busy: While another process drives the run, computes a stage or uses its GPUs: wait for
            it, or refuse.
        launcher: Where stages run: local (a process) or docker (a container); empty means what
            the run has, else what the deployment says.
        image: Container image of launcher docker; empty means what the deployment says.
        stage_hours: A stage that runs longer is ended.
        study: MLflow experiment.
        tracking_uri: MLflow server or store, without a login; empty means this machine's own.
    """
    config = resolve(profile, method, seed, iterations, given(overrides))
    run = name or default_name(profile, method, seed)
    create(config, run, study, tracking_uri, stage_hours, launcher, image, on_busy)
    return drive(run, from_stage, force_stage)


@flow(name="fork", flow_run_name="{name}", persist_result=False)
@in_one_sentence
def fork(
    run: str,
    name: str,
    overrides: Overrides | None = None,  # type: ignore[valid-type]
    seed: Seed | None = None,
    iterations: Iterations | None = None,
) -> dict[str, Any]:
    """Begin a new run with the configuration of another one, changed; returns its summary.

    Stages whose configuration and inputs did not change are shared, not computed again.

    Args:
        run: Name of the run to begin with.
        name: Name of the new run.
        overrides: What differs; empty fields keep the run's value.
        seed: Another seed.
        iterations: Another number of outer iterations.
    """
    changes = {**given(overrides), "seed": seed, "iterations": iterations}
    create_fork(run, name, {key: value for key, value in changes.items() if value is not None})
    return drive(name)


def drive(
    run: str, from_stage: str | None = None, force_stage: str | None = None
) -> dict[str, Any]:
    """Drive an existing run to its end, inside a flow run; returns its summary."""
    flow_run = str(runtime.flow_run.id or "")
    with beating(), driving(run) as opened:
        claim(opened)
        close_zombies(opened)
        start_again(opened, from_stage, force_stage, flow_run)
        tracked.open_parent(opened, flow_run or None)
        try:
            for t in range(opened.config.iterations + 1):
                pages.show_tracking(opened, PARENT, flow_run or None)
                row = iteration_flow(run, t)
                if t == 0:
                    tracked.report_comparable(opened)
                if t == 0 and opened.config.iterations:
                    pass_gate(opened.config, row)
        except BaseException as error:
            tracked.end_part(opened, PARENT, error)
            raise
        pages.show_tracking(opened, PARENT, flow_run or None)
        summary = write_summary(opened)
        opened.tracker.file(PARENT, opened.folder / "summary.json")
        opened.tracker.end(PARENT, "FINISHED")
    return summary


def pass_gate(config: ExperimentConfig, row: dict[str, Any]) -> None:
    """Hold iteration 0 at the base gate; a mean@k that was not sampled counts as 0."""
    base_gate(
        row.get(f"mean_at_{config.evaluation.samples}") or 0.0,
        row["top_answer_share"] or 0.0,
        min_mean_at_8=config.gate.min_mean_at_k,
        max_top_answer_share=config.gate.max_top_answer_share,
    )
