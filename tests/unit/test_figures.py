"""Figures from plain numbers, and what runs beside each other have in common."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flows.cli.compare_runs import parameters_table, score_table
from tasks.figures import PANELS, Point, accuracy_figure, save, stages_figure
from tasks.run_groups import (
    RunRecord,
    accuracy_charts,
    curves,
    differing,
    group_runs,
    scores,
)

PNG = b"\x89PNG\r\n"


def record(name: str, method: str, seed: int, greedy: list[float], **more: Any) -> RunRecord:
    rows = [{"iteration": t, "greedy": v, "mean_at_8": v / 2} for t, v in enumerate(greedy)]
    parameters = {"method": method, "seed": seed, "executor.alpha": 0.6, **more}
    return RunRecord(name, seed, parameters, rows)


RUNS = [
    record("a0", "anchorloop", 0, [0.5, 0.7, 0.9]),
    record("a1", "anchorloop", 1, [0.3, 0.6]),
    record("b0", "agent0", 0, [0.5, 0.8, 0.7]),
]


def test_runs_that_differ_in_the_seed_alone_are_one_group() -> None:
    groups = group_runs(RUNS)
    assert [(group.label, group.seeds) for group in groups] == [
        ("anchorloop", [0, 1]),
        ("agent0", [0]),
    ]
    lines = curves(groups, "greedy")
    first = lines["anchorloop"]
    assert [point.iteration for point in first] == [0, 1, 2]
    assert first[0].mean == pytest.approx(0.4)
    assert first[0].spread == pytest.approx(0.02**0.5)
    assert first[2] == Point(2, 0.9, None)
    assert scores(groups) == ["greedy", "mean_at_8"]


def test_namesakes_are_told_apart_by_what_differs() -> None:
    other = record("c0", "anchorloop", 0, [0.5], **{"executor.alpha": 0.3})
    groups = group_runs([*RUNS, other])
    assert [group.label for group in groups] == [
        "anchorloop, executor.alpha=0.6",
        "agent0",
        "anchorloop, executor.alpha=0.3",
    ]
    assert differing([RUNS[0], other]) == {"executor.alpha": [0.6, 0.3]}


def test_groups_that_differ_in_much_are_told_apart_by_a_run() -> None:
    far = {"executor.alpha": 0.3, "executor.steps": 4, "profile": "other"}
    groups = group_runs([*RUNS, record("far", "anchorloop", 0, [0.5], **far)])
    labels = [group.label for group in groups]
    assert labels == ["anchorloop (a0)", "agent0", "anchorloop (far)"]


def test_a_longer_run_of_the_same_seed_takes_the_place_of_the_shorter() -> None:
    longer = record("a9", "anchorloop", 1, [0.3, 0.6, 0.8], iterations=9)
    first, _ = group_runs([*RUNS, longer])
    assert [run.name for run in first.runs] == ["a0", "a9"]


def test_a_score_that_a_group_lacks_is_not_shown() -> None:
    rows = [{"iteration": 0, "greedy": 0.1, "mean_at_8": None}]
    lacking = RunRecord("d", 0, {"method": "base", "seed": 0}, rows)
    assert scores(group_runs([RUNS[0], lacking])) == ["greedy"]


def test_the_tables_read_well() -> None:
    console = Console(width=100, record=True)
    groups = group_runs(RUNS)
    console.print(parameters_table(RUNS, differing(RUNS)))
    console.print(score_table("greedy", groups, curves(groups, "greedy")))
    text = console.export_text()
    lines = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    assert "method anchorloop anchorloop agent0" in lines
    assert "seed 0 1 0" in lines
    assert not any("alpha" in line for line in lines)
    assert "anchorloop 0, 1 40.0 ± 14.1 65.0 ± 7.1 90.0" in lines
    assert "agent0 0 50.0 80.0 70.0" in lines


def test_the_accuracy_figure_has_a_panel_a_score_and_a_line_a_group(tmp_path: Path) -> None:
    groups = group_runs(RUNS)
    charts = {score: curves(groups, score) for score in scores(groups)}
    figure = accuracy_figure(charts, "t")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["greedy, %", "mean_at_8, %"]
    drawn = figure.axes[0].containers
    assert [bar.get_label() for bar in drawn] == ["anchorloop", "agent0"]
    assert list(drawn[1][0].get_ydata()) == pytest.approx([50, 80, 70])
    assert save(figure, tmp_path / "new" / "a.png")
    assert not save(accuracy_figure(charts, "t"), tmp_path / "new" / "a.png")
    assert save(accuracy_figure(charts, "t"), tmp_path / "b.png")
    content = (tmp_path / "new" / "a.png").read_bytes()
    assert content.startswith(PNG)
    assert content == (tmp_path / "b.png").read_bytes()
    assert len(content) < 200_000


def test_a_run_of_one_seed_has_its_own_chart() -> None:
    rows = [{"iteration": 0, "greedy": 0.5, "mean_at_32": 0.25, "mean_at_8": None}]
    summary = {"run": "r", "method": "base", "profile": "tiny", "seed": 3, "iterations": rows}
    charts = accuracy_charts(summary)
    assert list(charts) == ["greedy", "mean_at_32"]
    assert charts["mean_at_32"] == {"base": [Point(0, 0.25, None)]}


def test_the_stages_figure_shows_what_was_logged_and_leaves_gaps_out(tmp_path: Path) -> None:
    lines = [
        {"step": 0, "entropy": 0.5, "agreement": 0.25, "v_adv": None},
        {"step": 1, "agreement": 0.5, "v_adv": 0.1},
    ]
    figure = stages_figure({"curriculum": [], "executor": lines}, "t")
    assert len(figure.axes) == 8
    agreement, entropy = figure.axes[4].lines, figure.axes[6].lines
    assert [line.get_label() for line in agreement] == ["agreement", "v_adv"]
    assert list(agreement[0].get_ydata()) == [0.25, 0.5]
    assert list(agreement[1].get_xdata()) == [1]
    assert list(entropy[0].get_xdata()) == [0]
    save(figure, tmp_path / "s.png")
    assert (tmp_path / "s.png").read_bytes().startswith(PNG)


def test_every_panel_shows_metrics_that_the_stages_log() -> None:
    from training.trainers import curriculum_records, executor_groups

    update = {"entropy"}
    logged = {
        "curriculum": set(curriculum_records.summarise([])) | update,
        "executor": set(executor_groups.summarise([])) | update,
    }
    for stage, panels in PANELS.items():
        assert len(panels) == 4
        assert {metric for _, metrics in panels for metric in metrics} <= logged[stage]
