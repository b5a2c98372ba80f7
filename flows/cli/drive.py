"""Drive a run from this terminal, with a Prefect server while it lasts; show what came of it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from flows.services import Services


def drive(
    flow: str, asked: dict[str, Any], name: str, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Call a flow of ``flows.experiment`` with what was asked, for run ``name``, to its end.

    ``meanwhile`` is called while a server starts; what it raises ends the command. A stage that
    failed ends it with status 1, an interrupt with 130; raises UserError for mistakes.
    """
    from flows.services import ServiceError, Services
    from tasks.home import home

    services = Services(home())
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _server(services, meanwhile):
            summary = _flow_run(flow, asked)
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


def _hand_over() -> None:
    """Send what Prefect's client still holds before its server may end."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=10)


def _flow_run(flow: str, asked: dict[str, Any]) -> dict[str, Any]:
    import httpx
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    import flows.experiment
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
            return dict(getattr(flows.experiment, flow)(**asked))
    except (RunError, ConfigError) as error:
        raise UserError(str(error)) from None
    except (StageFailed, StageError) as error:
        print(f"anchorloop: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except (httpx.HTTPError, RuntimeError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 401:
            raise UserError(
                "the Prefect server asks for a login; set PREFECT_API_AUTH_STRING to its "
                "PREFECT_SERVER_API_AUTH_STRING"
            ) from None
        if not isinstance(error, httpx.HTTPError) and not isinstance(
            error.__cause__, httpx.HTTPError
        ):
            raise
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
