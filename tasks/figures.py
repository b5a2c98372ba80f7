"""The figures of a run, from plain numbers: accuracy by outer iteration, and a stage's steps.

Nothing here reads a file; matplotlib is loaded when a figure is drawn and needs no display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#d1661a", "#2a8a4a", "#a3322e", "#7b58a6", "#6d5440", "#c85a9e", "#555555")

PANELS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "curriculum": (
        (
            "reward and its terms",
            ("reward", "uncertainty", "tool_reward", "reference_reward", "repetition"),
        ),
        (
            "shares",
            ("format_valid_share", "unresolved_share", "positive_gap_share", "distinct_task_share"),
        ),
        ("entropy, nats a token", ("entropy",)),
        ("tool calls a trajectory", ("mean_tool_calls",)),
    ),
    "executor": (
        ("agreement and spread of advantages", ("agreement", "v_adv")),
        (
            "shares of groups",
            ("included_share", "unresolved_share", "reference_unresolved_share", "unanimous_share"),
        ),
        ("entropy, nats a token", ("entropy",)),
        ("tool calls a trajectory", ("mean_tool_calls",)),
    ),
}
"""Panels of a training stage: title, and the metrics of metrics.jsonl that it shows."""


@dataclass(frozen=True)
class Point:
    """Mean over seeds of a score at an outer iteration; `spread` is its standard deviation, None
    for one seed. Scores are fractions."""

    iteration: int
    mean: float
    spread: float | None = None


Curves = Mapping[str, Sequence[Point]]
"""A line of a chart by its label."""


def accuracy_figure(charts: Mapping[str, Curves], title: str) -> Figure:
    """Accuracy in per cent by outer iteration: one panel a score, one line a label."""
    figure = _figure(4.2 * max(len(charts), 1), 3.6, title)
    axes = figure.subplots(1, max(len(charts), 1), squeeze=False)[0]
    for axis, (score, curves) in zip(axes, charts.items(), strict=False):
        for colour, (label, points) in zip(_colours(len(curves)), curves.items(), strict=True):
            _curve(axis, points, label, colour)
        axis.set_title(f"{score}, %", loc="left", fontsize=9)
        axis.set_xlabel("outer iteration")
        axis.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, axes[0])
    return figure


def stages_figure(stages: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> Figure:
    """What the training stages of one iteration logged, by inner step: a row a stage."""
    figure = _figure(13.0, 3.2 * len(stages) + 0.4, title)
    axes = figure.subplots(len(stages), 4, squeeze=False)
    for row, (stage, lines) in zip(axes, stages.items(), strict=True):
        for axis, (panel, metrics) in zip(row, PANELS[stage], strict=True):
            for colour, metric in zip(COLOURS, metrics, strict=False):
                known = [(x["step"], x[metric]) for x in lines if x.get(metric) is not None]
                if known:
                    steps, values = zip(*known, strict=True)
                    axis.plot(steps, values, ".-", color=colour, label=metric, linewidth=1.3)
            axis.set_title(f"{stage}: {panel}", loc="left", fontsize=8.5)
            axis.set_xlabel("inner step", fontsize=8)
            axis.set_ylim(0.0, 1.08 * max(1e-9, axis.dataLim.ymax if axis.lines else 1.0))
            axis.xaxis.get_major_locator().set_params(integer=True)
            if len(metrics) > 1 and axis.lines:
                below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
                axis.legend(fontsize=7, frameon=False, **below)
    return figure


def save(figure: Figure, path: Path) -> bool:
    """Write a PNG in one rename, the same bytes for the same figure; whether it is another one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    figure.savefig(fresh, format="png", dpi=100, metadata={"Software": None})
    new = not path.exists() or path.read_bytes() != fresh.read_bytes()
    fresh.replace(path)
    return new


def _figure(width: float, height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _curve(axis: Axes, points: Sequence[Point], label: str, colour: str) -> None:
    x = [point.iteration for point in points]
    y = [100 * point.mean for point in points]
    spread = [100 * (point.spread or 0.0) for point in points]
    bars = spread if any(spread) else None
    axis.errorbar(
        x, y, bars, fmt="o-", markersize=4, color=colour, label=label, capsize=3, linewidth=1.6
    )


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1:
        columns = min(len(labels), 4) if max(map(len, labels)) <= 20 else 1
        figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, fontsize=8, frameon=False
        )


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
