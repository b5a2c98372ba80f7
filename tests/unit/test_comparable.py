"""The base gate on a report: which runs may be compared with published numbers."""

from typing import Any

import pytest

from training.benchmarks.base_gate import check_report

MODEL = "Qwen/Qwen3-4B-Base"


def report(partial: bool = False, complete: bool = True, **scores: float) -> dict[str, Any]:
    values = {name: {"value": v, "complete": complete} for name, v in scores.items()}
    return {"partial": partial, "benchmarks": values}


def test_the_papers_row_is_the_reference_of_its_models() -> None:
    gate = check_report(report(math500=0.727, gsm8k=0.888), MODEL, True, None)
    assert gate is not None
    assert gate.comparable
    assert check_report(report(math500=0.7), "my/model", True, None) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (report(math500=0.60, gsm8k=0.888), "math500 gives 60.0"),
        (report(math500=0.727), "gsm8k has no complete score"),
        (report(complete=False, math500=0.727, gsm8k=0.888), "math500 has no complete score"),
        (report(partial=True, math500=0.727, gsm8k=0.888), "math500 has no complete score"),
    ],
)
def test_what_is_out_of_range_or_incomplete_is_named(given: dict[str, Any], words: str) -> None:
    gate = check_report(given, MODEL, True, None)
    assert gate is not None
    assert not gate.comparable
    assert words in "; ".join(gate.reasons)


def test_own_references_and_tolerance_win() -> None:
    own = check_report(report(gsm8k=0.5), MODEL, True, {"gsm8k": 55.0}, tolerance=6)
    assert own is not None
    assert own.comparable
