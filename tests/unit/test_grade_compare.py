"""`anchorloop compare` and what `anchorloop evaluate` refuses before it starts anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training.benchmarks.comparison import compare_reports, seeds_table

ROOT = Path(__file__).parents[2]


def report(right: dict[str, float], checksum: str = "c") -> dict[str, Any]:
    value = sum(right.values()) / len(right)
    return {"benchmarks": {"gsm8k": {"value": value, "checksum": checksum, "by_question": right}}}


def anchorloop(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_several_seeds_a_side_are_averaged_by_question() -> None:
    first = [report({"a": 1.0, "b": 0.0}), report({"a": 0.0, "b": 0.0})]
    second = [report({"a": 1.0, "b": 1.0}), report({"a": 1.0, "b": 0.0, "c": 1.0})]
    found = compare_reports(first, second)["gsm8k"]
    assert (found.n, found.difference, found.wins) == (2, 0.5, 2)
    assert seeds_table(first)["gsm8k"] == (0.25, pytest.approx(0.5**0.5 / 2))


def test_other_texts_are_no_basis_for_a_comparison() -> None:
    with pytest.raises(ValueError, match="different copies of gsm8k"):
        compare_reports([report({"a": 1.0}, "c")], [report({"a": 1.0}, "d")])


def test_the_compare_command(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two"
    two.mkdir()
    one.write_text(json.dumps(report({f"q{i}": float(i < 40) for i in range(100)})))
    (two / "scores.json").write_text(
        json.dumps(report({f"q{i}": float(i < 60) for i in range(100)}))
    )
    done = anchorloop("compare", str(one), str(two))
    assert done.returncode == 0, done.stderr
    assert "gsm8k: 40.0 → 60.0, difference +20.0" in done.stdout
    assert "exact McNemar, n = 100, 20 won, 0 lost" in done.stdout
    parsed = json.loads(anchorloop("compare", str(one), str(two), "--json").stdout)
    assert parsed["paired"]["gsm8k"]["wins"] == 20
    wrong = anchorloop("compare", str(one), str(tmp_path / "absent.json"))
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "absent.json is no evaluation report" in wrong.stderr


@pytest.mark.parametrize(
    "entry",
    [5, [], {"value": 1.0, "by_question": {"a": 1.0}}, {"value": 1.0, "checksum": "c"},
     {"value": "x", "checksum": "c", "by_question": {}},
     {"value": 1.0, "checksum": "c", "by_question": {"a": None}}],
)  # fmt: skip
def test_an_entry_that_is_no_score_ends_in_one_sentence(entry: Any, tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    file.write_text(json.dumps({"benchmarks": {"gsm8k": entry}}))
    done = anchorloop("compare", str(file), str(file))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "its entry 'gsm8k' is no score" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--benchmarks", "gsm9k"], "choose from amc23"),
        (["tiny", "--benchmarks", ","], "names none"),
        (["tiny", "--reference", "gsm8k"], "'gsm8k' is not of the form benchmark=score"),
        (["tiny", "--data", "absent"], "absent, which is not a folder"),
        (["tiny", "--set", "rollout.turns=3"], "turns"),
    ],
)
def test_evaluate_refuses_in_one_sentence(arguments: list[str], message: str) -> None:
    done = anchorloop("evaluate", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
