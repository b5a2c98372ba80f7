"""``anchorloop run``: an experiment from this terminal, with a Prefect server while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from training.config import ExperimentConfig


def run(
    profile: Annotated[str, typer.Option(help="Model and scale.")] = "tiny",
    method: Annotated[str, typer.Option(help="What is compared.")] = "anchorloop",
    seed: Annotated[int, typer.Option(help="All randomness derives from it.")] = 0,
    iterations: Annotated[
        int | None, typer.Option(help="Outer iterations; default: what profile and method say.")
    ] = None,
    trainer: Annotated[
        str | None,
        typer.Option(help="torch or verl; the same as --set trainer.backend=…."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any value of the configuration."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run; default: profile-method-seed.")
    ] = None,
    study: Annotated[str, typer.Option(help="MLflow experiment.")] = "anchorloop",
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow server or store; default: this folder's own.")
    ] = None,
    stage_hours: Annotated[float, typer.Option(help="A stage that runs longer is ended.")] = 72.0,
    launcher: Annotated[
        str | None,
        typer.Option(help="Where stages run: local or docker; default: the run's own, else local."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image of --launcher docker; default: anchorloop-gpu.")
    ] = None,
    on_busy: Annotated[
        Literal["wait", "refuse"],
        typer.Option(help="While another process is in the way: wait for it, or refuse."),
    ] = "wait",
    from_stage: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="Compute i2/executor, say, and all behind it again."),
    ] = None,
    force_stage: Annotated[
        str | None, typer.Option(metavar="STAGE", help="Compute this stage alone again.")
    ] = None,
) -> None:
    """Run an experiment, or go on with one that was interrupted (same arguments)."""
    from flows.cli.drive import drive
    from flows.naming import assigned, default_name, resolve
    from tasks.launchers import launcher as place_of
    from tasks.runs import RunError, create
    from training.config_load import parse_assignments
    from training.errors import ConfigError, InfraError

    name = name or default_name(profile, method, seed)
    try:
        overrides = parse_assignments(assigned(set_, trainer))
        config = resolve(profile, method, seed, iterations, overrides)
        settings = create(config, name, study, tracking_uri, stage_hours, launcher, image, on_busy)
        place_of(settings.launcher, settings.image).image()
    except (ConfigError, InfraError, RunError) as error:
        raise UserError(str(error)) from None
    asked = {
        "profile": profile,
        "method": method,
        "seed": seed,
        "iterations": iterations,
        "overrides": overrides or None,
        "name": name,
        "study": study,
        "tracking_uri": tracking_uri,
        "stage_hours": stage_hours,
        "launcher": launcher,
        "image": image,
        "on_busy": on_busy,
        "from_stage": from_stage,
        "force_stage": force_stage,
    }
    drive("experiment", asked, name, meanwhile=lambda: _check_model(config))


def _check_model(config: ExperimentConfig) -> None:
    """Refuse a model that cannot be had, unless the store has its artifact."""
    from flows.checks import Unfit, check_model
    from tasks.home import home
    from training.errors import ConfigError
    from training.plan import plan
    from training.store import Store

    try:
        if Store(home().store).verify(plan(config)[0].identity) is None:
            check_model(config.model)
    except (ConfigError, Unfit) as error:
        raise UserError(f"the model cannot be had: {error}") from None
