"""How ``anchorloop status`` draws a run: DAG as a tree, numbers, alarms and last failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.cli.tables import summary_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.text import Text

    from tasks.run_view import RunView, StageView

MARKS = {
    "computed": ("✔", "green"),
    "reused": ("↺", "cyan"),
    "there": ("○", "cyan"),
    "removed": ("−", "dim"),
    "running": ("▶", "yellow"),
    "failed": ("✘", "red"),
    "waiting": ("·", "dim"),
}
IDENTITY = 12
"""Digits of an artifact id that are shown; they are those of its folder in the store."""


def run_page(view: RunView, tracking: str) -> RenderableType:
    """All of a run, from top to bottom; ``tracking`` says where its numbers go."""
    from rich.console import Group

    return Group(*_parts(view, tracking))


def _parts(view: RunView, tracking: str) -> Iterator[Any]:
    from rich.text import Text

    yield dag(view)
    if view.summary and view.summary["iterations"]:
        yield Text()
        yield summary_table(view.summary)
    alarms = [(stage, alarm) for stage in view.stages for alarm in stage.alarms]
    if alarms:
        yield Text("\nalarms", style="bold yellow")
    for stage, alarm in alarms:
        yield Text(f"  {stage.name}, step {alarm.step}, {alarm.level}: {alarm.sentence}")
    failed = view.failed
    if failed is not None and failed.failure is not None:
        yield Text("\nlast failure", style="bold red")
        yield Text(f"  {failed.name}, {failed.failure.kind}: {failed.failure.message}")
        if failed.failure.log is not None:
            yield Text(f"  log: {failed.failure.log}")
    yield Text(f"\ntracking: {tracking}", style="dim")


def dag(view: RunView) -> RenderableType:
    """The stages as a tree by iteration, a line a stage."""
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text.assemble((view.name, "bold"), f": {state_line(view)}"), guide_style="dim")
    rows: dict[int, Table] = {}
    for stage in view.stages:
        if stage.iteration not in rows:
            branch = tree.add(_iteration_title(view, stage.iteration))
            rows[stage.iteration] = Table.grid(padding=(0, 2))
            branch.add(rows[stage.iteration])
        mark, style = MARKS[stage.state]
        rows[stage.iteration].add_row(
            Text(f"{mark} {stage.stage:<12}", style=style),
            Text(f"{stage.state:<8}", style=style),
            Text(_time(stage).rjust(9)),
            Text(stage.identity[:IDENTITY], style="dim"),
            Text(f"← {', '.join(stage.made_from)}" if stage.made_from else "", style="dim"),
            _note(stage),
        )
    return tree


def state_line(view: RunView) -> str:
    """``running``, ``finished``, ``new`` or ``stopped``, and what it does or last did."""
    if view.state == "running":
        stage = view.running
        if stage is None:
            return "running"
        return f"running, {stage.name}{f': {stage.progress}' if stage.progress else ''}"
    if view.state == "stopped":
        stage = view.failed
        if stage is None or stage.failure is None:
            return "stopped; the same `anchorloop run` goes on"
        why = f"{stage.failure.kind}: {stage.failure.message}"
        return f"stopped, at {stage.name} ({why}); the same `anchorloop run` goes on"
    return view.state


def _iteration_title(view: RunView, iteration: int) -> Text:
    from rich.text import Text

    from tasks.run_view import DONE

    mine = [stage for stage in view.stages if stage.iteration == iteration]
    done = sum(stage.state in DONE for stage in mine)
    name = "base model" if iteration == 0 else f"iteration {iteration}"
    return Text(f"{name}  {done} of {len(mine)}", style="bold")


def _time(stage: StageView) -> str:
    from tasks.watch import duration

    return "" if stage.seconds is None else duration(stage.seconds)


def _note(stage: StageView) -> Text:
    from rich.text import Text

    note = Text()
    if stage.progress is not None and stage.state == "running":
        full = round(20 * stage.progress.share)
        note.append("━" * full, style="yellow").append("╌" * (20 - full) + " ", style="dim")
        note.append(str(stage.progress))
    if stage.failure is not None:
        note.append(stage.failure.kind, style="red")
    if stage.alarms:
        names = dict.fromkeys(alarm.name for alarm in stage.alarms)
        note.append(f"{'  ' if note else ''}⚠ {', '.join(names)}", style="yellow")
    return note
