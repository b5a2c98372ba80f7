"""Tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where lines must not be folded."""

SHARES = {
    "positive_gap_share": "gap > 0",
    "unresolved_share": "unresolved",
    "format_valid_share": "format valid",
    "distinct_task_share": "distinct tasks",
    "top_answer_share": "top answer",
    "in_grammar_share": "in grammar",
}


def summary_table(summary: Mapping[str, Any]) -> Table:
    """A run's summary: one row an iteration, scores and shares in per cent."""
    from rich.table import Table

    from tasks.run_groups import accuracy_title

    table = Table(title=accuracy_title(summary), title_justify="left")
    rows = summary["iterations"]
    mean = next((k for row in rows for k in row if k.startswith("mean_at_") and row[k]), None)
    mean = mean or "mean_at_8"
    head = ["iteration", "greedy %", f"mean@{mean[8:]} %", "V_adv", *SHARES.values()]
    for column in [*head, "tool calls", "alarms", "seconds"]:
        table.add_column(column, justify="right")
    for row in rows:
        shares = [percent(row.get(key)) for key in SHARES]
        table.add_row(
            str(row["iteration"]),
            percent(row.get("greedy")),
            percent(row.get(mean)),
            number(row.get("v_adv"), 3),
            *shares,
            number(row.get("mean_tool_calls"), 2),
            str(row.get("alarms", "–")),
            number(row.get("seconds"), 1),
        )
    if older := summary.get("older_anchor"):
        table.caption = (
            f"In iteration {', '.join(map(str, older))} the anchor is older than the Executor that "
            "judges, so the reference gap compares two different models."
        )
        table.caption_justify = "left"
    return table


def console() -> Console:
    """The terminal, or a wide page where output is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDE)


def percent(value: float | None) -> str:
    """A share in per cent with one decimal; a dash for none."""
    return "–" if value is None else f"{100 * value:.1f}"


def number(value: float | None, digits: int) -> str:
    """A number; a dash for none."""
    return "–" if value is None else f"{value:.{digits}f}"
