"""``anchorloop compare-runs`` on runs whose stages are stubs: seeds grouped, methods beside each
other, and the chart."""

from pathlib import Path

import pytest

from flows.cli.compare_runs import compare_runs
from flows.cli.errors import UserError
from tasks.runs import create, driving
from tasks.stage import run_stage
from tasks.summary import write_summary
from training.config_load import load_config


def finish(name: str, method: str, seed: int) -> None:
    create(load_config("tiny", method, {"iterations": 1, "seed": seed}), name, "study")
    with driving(name) as run:
        for entry in run.entries:
            run_stage(run, entry)
        write_summary(run)


def test_two_methods_over_seeds(
    stub_home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, method, seed in (
        ("a0", "anchorloop", 0),
        ("a1", "anchorloop", 1),
        ("b", "agent0", 0),
    ):
        finish(name, method, seed)
    chart = tmp_path / "chart.png"
    capsys.readouterr()
    compare_runs(["a0", "a1", "b"], chart)
    lines = [" ".join(x.replace("│", " ").split()) for x in capsys.readouterr().out.splitlines()]
    assert "curriculum.lambda_ref 0.4 0.4 0.0" in lines
    assert "method anchorloop anchorloop agent0" in lines
    assert lines.count("anchorloop 0, 1 37.5 ± 0.0 50.0 ± 0.0") == 1
    assert "agent0 0 37.5 50.0" in lines
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_told_in_a_sentence(stub_home: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart.png"
    with pytest.raises(UserError, match="name two runs or more"):
        compare_runs(["a", "a"], chart)
    with pytest.raises(UserError, match="there is no run 'nobody' here"):
        compare_runs(["nobody", "other"], chart)
    create(load_config("tiny"), "new", "study")
    with pytest.raises(UserError, match="run 'new' has no finished iteration yet"):
        compare_runs(["new", "other"], chart)
    assert not chart.exists()
