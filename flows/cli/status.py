"""``anchorloop status``: what ran, what runs, and where to look; read from files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.errors import UserError


def status(
    name: Annotated[str | None, typer.Argument(help="One run, with its numbers.")] = None,
) -> None:
    """List the runs of this folder and the servers that are up."""
    from flows.cli.tables import console
    from flows.services import Services
    from tasks.home import home

    place = home()
    page = console()
    if name is not None:
        _one(page, place, name)
        return
    folders = sorted(p for p in place.runs.iterdir() if (p / "run.json").exists())
    if not folders:
        print("no runs here yet; `anchorloop run` starts one")
    else:
        page.print(_list(place, folders))
    for service in ("prefect", "mlflow", "worker"):
        found = Services(place).find(service)
        print(f"{service:<8} {(found.url or 'runs') if found else 'is not up'}")


def _list(place: Any, folders: list[Path]) -> Any:
    from rich.table import Table

    from flows.cli.tables import percent
    from tasks.summary import read_summary

    table = Table()
    for column in ("run", "state", "iteration", "greedy %", "now"):
        table.add_column(column)
    for folder in folders:
        state, now = state_of(place, folder)
        summary = read_summary(folder)
        rows = summary["iterations"] if summary else []
        planned = summary["planned_iterations"] if summary else 0
        reached = f"{rows[-1]['iteration']} of {planned}" if rows else "–"
        greedy = percent(rows[-1].get("greedy")) if rows else "–"
        table.add_row(folder.name, state, reached, greedy, now)
    return table


def _one(page: Any, place: Any, name: str) -> None:
    from flows.cli.tables import summary_table
    from tasks.runs import RunError, read_settings
    from tasks.summary import read_summary

    try:
        folder = place.run(name)
        settings = read_settings(folder)
    except (RunError, ValueError) as error:
        raise UserError(str(error)) from None
    summary = read_summary(folder)
    if summary is not None:
        page.print(summary_table(summary))
    state, now = state_of(place, folder)
    print(f"{name}: {state}{', ' + now if now else ''}")
    print(f"tracking: {settings.tracking_uri}, experiment {settings.study}")


def state_of(place: Any, folder: Path) -> tuple[str, str]:
    """``running``, ``finished``, ``stopped`` or ``new``, and what it does or last did."""
    from tasks.runs import driver
    from tasks.summary import read_summary
    from tasks.watch import read_progress
    from training.store import Store

    current = _json(folder / "current.json")
    stage = current.get("stage", "")
    if driver(folder) is not None:
        work = Store(place.store).place(current["identity"]).work if current else None
        progress = read_progress(work) if work else None
        return "running", f"{stage}: {progress}" if progress else stage
    summary = read_summary(folder)
    if summary and len(summary["iterations"]) == summary["planned_iterations"] + 1:
        return "finished", ""
    if not current:
        return "new", ""
    failure = _json(Store(place.store).place(current["identity"]).failure)
    why = f" ({failure['kind']}: {failure['message']})" if failure else ""
    return "stopped", f"at {stage}{why}; the same `anchorloop run` goes on"


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
