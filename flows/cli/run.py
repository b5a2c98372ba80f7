"""``anchorloop run``: an experiment from this terminal, with a Prefect server while it lasts."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from flows.services import Services
    from training.config import ExperimentConfig


def run(
    profile: Annotated[str, typer.Option(help="Model and scale.")] = "tiny",
    method: Annotated[str, typer.Option(help="What is compared.")] = "anchorloop",
    seed: Annotated[int, typer.Option(help="All randomness derives from it.")] = 0,
    iterations: Annotated[
        int | None, typer.Option(help="Outer iterations; default: what profile and method say.")
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
) -> None:
    """Run an experiment, or go on with one that was interrupted (same arguments)."""
    from flows.naming import default_name, resolve
    from flows.services import ServiceError, Services
    from tasks.home import home
    from tasks.launchers import launcher as place_of
    from tasks.runs import RunError, create
    from training.config_load import parse_assignments
    from training.errors import ConfigError, InfraError

    name = name or default_name(profile, method, seed)
    try:
        overrides = parse_assignments(set_ or [])
        config = resolve(profile, method, seed, iterations, overrides)
        settings = create(config, name, study, tracking_uri, stage_hours, launcher, image)
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
    }
    services = Services(home())
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _server(services, meanwhile=lambda: _check_model(config)):
            summary = _experiment(asked)
    except ServiceError as error:
        raise UserError(str(error)) from None
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on with run '{name}'", file=sys.stderr)
        raise typer.Exit(130) from None
    _show(services, summary)


@contextlib.contextmanager
def _server(services: Services, meanwhile: Callable[[], None]) -> Iterator[None]:
    """A Prefect server in the environment: the user's own by PREFECT_API_URL, else ours.

    ``meanwhile`` is called while a server starts; what it raises ends the command.
    """
    os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "anchorloop")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    services.port("mlflow")  # links in Prefect name the address that `up` will give MLflow
    if os.environ.get("PREFECT_API_URL"):
        meanwhile()
        yield
        return
    with services.prefect() as server:
        os.environ.update(services.environment())
        import flows.experiment  # noqa: F401  takes a second, in which the server starts

        meanwhile()
        services.wait(server)
        try:
            yield
        finally:
            _hand_over()


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


def _hand_over() -> None:
    """Send what Prefect's client still holds before its server may end."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=10)


def _experiment(asked: dict[str, Any]) -> dict[str, Any]:
    import httpx
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.experiment import experiment
    from tasks.runs import RunError
    from tasks.stage import StageFailed
    from training.errors import ConfigError, StageError

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("anchorloop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        # nobody waits for heartbeats here, and stopping them costs every flow a second
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            return dict(experiment(**asked))
    except (RunError, ConfigError) as error:
        raise UserError(str(error)) from None
    except (StageFailed, StageError) as error:
        print(f"anchorloop: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except httpx.HTTPError as error:
        print(f"anchorloop: the Prefect server does not answer ({error})", file=sys.stderr)
        print("what is finished is kept; the same command goes on", file=sys.stderr)
        raise typer.Exit(1) from None


def _show(services: Services, summary: dict[str, Any]) -> None:
    from flows.cli.tables import console, summary_table
    from tasks.home import home

    page = console()
    page.print(summary_table(summary))
    root, name = home().root, summary["run"]
    folder = (home().runs / name).relative_to(root)
    mlflow = f"http://127.0.0.1:{services.port('mlflow')}"
    prefect = f"http://127.0.0.1:{services.port('prefect')}"
    lines = (
        f"numbers         {folder}/summary.json",
        f"configuration   {folder}/config.yaml",
        f"stages          {folder}/stages.jsonl (each with the path of its artifact)",
        "look further    anchorloop up      opens Prefect and MLflow on the same stores:",
        f"                                   {prefect} and {mlflow}",
        "                anchorloop status  what ran, what runs",
    )
    for line in lines:
        page.print(line, highlight=False)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
