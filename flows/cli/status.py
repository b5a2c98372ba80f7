"""``anchorloop status``: what ran, what runs, and where to look; read from files alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_S = 1.0


def status(
    name: Annotated[
        str | None, typer.Argument(help="One run, with its stages and numbers.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing it until nothing drives the run.")
    ] = False,
) -> None:
    """List the runs of this folder and the servers that are up, or show one run."""
    from flows.cli.tables import console
    from flows.services import Services
    from tasks.home import home

    place = home()
    page = console()
    if name is not None:
        _one(page, place, name, watch)
        return
    if watch:
        raise UserError("--watch needs the name of a run; `anchorloop status` lists them")
    folders = sorted(p for p in place.runs.iterdir() if (p / "run.json").exists())
    if not folders:
        print("no runs here yet; `anchorloop run` starts one")
    else:
        page.print(_list(place, folders))
    for service in ("prefect", "mlflow", "worker"):
        found = Services(place).find(service)
        print(f"{service:<8} {(found.url or 'runs') if found else 'is not up'}")


def _list(place: Any, folders: list[Path]) -> RenderableType:
    from rich.table import Table

    from flows.cli.status_view import state_line
    from flows.cli.tables import percent
    from tasks.run_view import view_run

    table = Table()
    for column in ("run", "iteration", "greedy %", "alarms", "state"):
        table.add_column(column)
    for folder in folders:
        view = view_run(place, folder)
        rows = view.summary["iterations"] if view.summary else []
        planned = view.summary["planned_iterations"] if view.summary else 0
        reached = f"{rows[-1]['iteration']} of {planned}" if rows else "–"
        greedy = percent(rows[-1].get("greedy")) if rows else "–"
        alarms = sum(len(stage.alarms) for stage in view.stages)
        table.add_row(folder.name, reached, greedy, str(alarms or "–"), state_line(view))
    return table


def _one(page: Any, place: Any, name: str, watch: bool) -> None:
    from rich.live import Live

    from flows.cli.status_view import run_page
    from tasks.run_view import view_run
    from tasks.runs import RunError, read_settings

    try:
        folder = place.run(name)
        settings = read_settings(folder)
    except (RunError, ValueError) as error:
        raise UserError(str(error)) from None
    tracking = f"{settings.tracking_uri}, experiment {settings.study}"
    view = view_run(place, folder)
    if not watch:
        page.print(run_page(view, tracking))
        return
    with Live(run_page(view, tracking), console=page, auto_refresh=False) as live:
        while view.state == "running":
            time.sleep(LOOK_S)
            view = view_run(place, folder)
            live.update(run_page(view, tracking), refresh=True)
