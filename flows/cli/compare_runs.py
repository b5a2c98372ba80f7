"""``anchorloop compare-runs``: parameters that differ, accuracy by iteration, and its chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from tasks.figures import Point
    from tasks.run_groups import Group, RunRecord


def compare_runs(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Two runs or more.")],
    chart: Annotated[Path, typer.Option(help="Where the chart goes, a PNG.")] = Path(
        "comparison.png"
    ),
) -> None:
    """Compare runs by outer iteration; runs that differ in the seed alone become one line."""
    from flows.cli.tables import console
    from tasks.figures import accuracy_figure, save
    from tasks.home import home
    from tasks.run_groups import curves, differing, group_runs, read_run, scores
    from tasks.runs import RunError
    from training.errors import ConfigError

    if len(set(names)) < 2:
        raise UserError("name two runs or more; `anchorloop status` lists what there is")
    try:
        runs = [read_run(home(), name) for name in dict.fromkeys(names)]
    except (RunError, ConfigError) as error:
        raise UserError(str(error)) from None
    groups = group_runs(runs)
    page = console()
    page.print(parameters_table(runs, differing(runs)))
    charts = {score: curves(groups, score) for score in scores(groups)}
    for score, lines in charts.items():
        page.print(score_table(score, groups, lines))
    if not charts:
        raise UserError("these runs have no score in common")
    try:
        save(accuracy_figure(charts, "Accuracy by outer iteration, mean ± sd over seeds"), chart)
    except OSError as error:
        raise UserError(f"the chart cannot be written to {chart}: {error.strerror}") from None
    page.print(f"chart: {chart}", highlight=False)


def parameters_table(runs: Sequence[RunRecord], different: Mapping[str, Sequence[Any]]) -> Table:
    """A line a parameter that differs, a column a run."""
    from rich.table import Table

    table = Table(title="Parameters that differ", title_justify="left")
    for column in ("parameter", *(run.name for run in runs)):
        table.add_column(column, overflow="fold")
    for key, values in different.items():
        table.add_row(key, *("–" if value is None else str(value) for value in values))
    return table


def score_table(score: str, groups: Sequence[Group], lines: Mapping[str, Sequence[Point]]) -> Table:
    """A line a group, a column an iteration: mean ± standard deviation over seeds, per cent."""
    from rich.table import Table

    table = Table(title=f"{score}, %: mean ± sd over seeds", title_justify="left")
    iterations = sorted({point.iteration for points in lines.values() for point in points})
    table.add_column("group", overflow="fold")
    table.add_column("seeds")
    for iteration in iterations:
        table.add_column(f"i{iteration}", justify="right")
    for group in groups:
        points = {point.iteration: point for point in lines[group.label]}
        seeds = ", ".join(map(str, group.seeds))
        table.add_row(group.label, seeds, *(_cell(points.get(t)) for t in iterations))
    return table


def _cell(point: Point | None) -> str:
    if point is None:
        return "–"
    spread = "" if point.spread is None else f" ± {100 * point.spread:.1f}"
    return f"{100 * point.mean:.1f}{spread}"
