"""Scores, averages, paired tests and the base gate on hand-worked and simulated outcomes."""

from __future__ import annotations

import random
from decimal import Decimal
from statistics import fmean

import pytest

from training.benchmarks.base_gate import check_base
from training.benchmarks.catalog import members
from training.benchmarks.metrics import (
    Outcome,
    Score,
    average,
    over_seeds,
    percent,
    score,
)
from training.benchmarks.paired import compare, mcnemar
from training.benchmarks.schema import GradeStatus


def outcome(question: str, correct: bool | None, sample: int = 0, **more: object) -> Outcome:
    status = GradeStatus.INFRA if correct is None else GradeStatus.GRADED
    values = {"status": status, **more}
    return Outcome(question, sample, correct, **values)  # type: ignore[arg-type]


def scored(name: str, value: float, n: int = 1000) -> Score:
    right = round(value * n)
    return score(name, "pass@1", [outcome(f"q{i}", i < right) for i in range(n)], expected=n)


def test_pass_at_1_of_a_scripted_policy_is_exact() -> None:
    result = score("x", "pass@1", [outcome(f"q{i}", i % 7 == 0) for i in range(500)], 500)
    assert result.value == 72 / 500
    assert result.complete
    assert result.interval is not None
    assert result.interval[0] < 72 / 500 < result.interval[1]


def test_mean_at_32_averages_responses_then_questions() -> None:
    rates = [i / 39 for i in range(40)]
    draw = random.Random(5)
    outcomes = [
        outcome(f"q{q}", draw.random() < rate, sample)
        for q, rate in enumerate(rates)
        for sample in range(32)
    ]
    result = score("amc23", "mean@32", outcomes, 40, samples=32)
    spread = (fmean(r * (1 - r) for r in rates) / (40 * 32)) ** 0.5
    assert result.value == pytest.approx(fmean(rates), abs=4 * spread)
    by_hand = [
        fmean(o.correct or 0 for o in outcomes if o.question_id == f"q{q}") for q in range(40)
    ]
    assert result.value == fmean(by_hand)


def test_more_samples_leave_the_mean_where_it_is() -> None:
    few = [outcome("q", i % 2 == 0, i) for i in range(2)]
    many = [outcome("q", i % 2 == 0, i) for i in range(64)]
    assert score("x", "m", few, 1, 2).value == score("x", "m", many, 1, 64).value == 0.5


def test_an_uneven_question_counts_once() -> None:
    outcomes = [
        outcome("a", True, 0),
        outcome("a", None, 1),
        *(outcome("b", False, i) for i in (0, 1)),
    ]
    filler = [outcome(f"f{i}", True, s) for i in range(98) for s in (0, 1)]
    result = score("x", "mean@2", outcomes + filler, 100, samples=2)
    assert result.value == 0.99
    assert result.infra == 1


def test_too_many_infra_failures_withhold_the_score() -> None:
    ninety_seven = [outcome(f"q{i}", True) for i in range(97)]
    result = score("x", "pass@1", ninety_seven + [outcome(f"i{i}", None) for i in range(3)], 100)
    assert result.value is None
    assert "machinery" in str(result.withheld)
    fine = score("x", "pass@1", ninety_seven + [outcome("i", None)] * 1, 100)
    assert (fine.value, fine.infra, fine.missing) == (1.0, 1, 2)
    assert not fine.complete


def test_shares_and_tool_calls() -> None:
    rows = [
        outcome("a", True, tool_calls=3),
        outcome("b", False, status=GradeStatus.UNPARSED, truncated=True),
        outcome("c", False, undecided=True, tool_calls=1),
        outcome("d", True, subject="law"),
    ]
    result = score("x", "pass@1", rows, 4)
    shares = (result.unparsed, result.truncated, result.undecided, result.tool_calls)
    assert shares == (0.25, 0.25, 0.25, 1.0)
    assert result.by_subject == {"law": 1.0}


def test_a_response_graded_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        score("x", "pass@1", [outcome("a", True), outcome("a", False)], 2)


def test_averages_use_unrounded_scores_and_round_last() -> None:
    values = [0.4555, 0.6864, 0.8855, 0.3733, 0.4122, 0.1104, 0.0633]
    scores = [scored(name, v, 10_000) for name, v in zip(members("math"), values, strict=True)]
    result = average("math", scores)
    assert result.complete
    assert result.value == percent(fmean(values)) == Decimal("42.7")


def test_a_missing_benchmark_is_named_and_never_zero() -> None:
    scores = [scored(name, 0.5) for name in members("general") if name != "gpqa_diamond"]
    result = average("general", scores)
    assert (result.value, result.missing) == (Decimal("50.0"), ("gpqa_diamond",))
    assert average("math", scores).value is None


def test_members_are_those_of_the_papers_table() -> None:
    assert members("math") == (
        "amc23", "math500", "gsm8k", "minerva", "olympiadbench", "aime24", "aime25",
    )  # fmt: skip
    assert members("general") == (
        "supergpqa", "mmlu_pro", "bbeh", "gpqa_diamond", "humaneval", "agieval",
    )  # fmt: skip


def test_percent_rounds_halves_up() -> None:
    assert [percent(x) for x in (0.4225, 0.4235, 0.0005)] == [
        Decimal("42.3"), Decimal("42.4"), Decimal("0.1"),
    ]  # fmt: skip


def test_over_seeds() -> None:
    assert over_seeds([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert over_seeds([1.0]) == (1.0, None)


def test_mcnemar_is_the_binomial_tail() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(3, 1) == pytest.approx(2 * 5 / 16)
    assert mcnemar(4, 4) == 1.0


def test_compare_pairs_shared_questions() -> None:
    first = {f"q{i}": float(i < 50) for i in range(100)} | {"only": 1.0}
    second = {f"q{i}": float(i < 70) for i in range(100)}
    result = compare(first, second)
    assert (result.n, result.unmatched, result.wins, result.losses) == (100, 1, 20, 0)
    assert result.difference == pytest.approx(0.2)
    assert result.p_value == pytest.approx(2 / 2**20)
    assert result.interval[0] > 0
    assert result.test == "exact McNemar"


def test_compare_of_means_permutes_signs() -> None:
    draw = random.Random(1)
    first = {f"q{i}": draw.random() for i in range(60)}
    same = compare(
        first, {q: min(1.0, max(0.0, v + draw.gauss(0, 0.05))) for q, v in first.items()}
    )
    better = compare(first, {q: v + 0.1 for q, v in first.items()})
    assert same.p_value > 0.01 > better.p_value
    assert better.test == "sign-flip permutation"


def test_the_base_gate_names_what_is_out_of_range() -> None:
    references = {"math500": 68.6, "gsm8k": 88.5}
    good = [scored("math500", 0.70), scored("gsm8k", 0.88)]
    assert check_base(good, references).comparable
    off = check_base([scored("math500", 0.70), scored("gsm8k", 0.80)], references)
    assert not off.comparable
    assert off.reasons[0].startswith("not comparable: gsm8k gives 80.0")
    assert check_base([scored("math500", 0.70), scored("gsm8k", 0.80)], references, 9.0).comparable
    assert not check_base(good[:1], references).comparable
    assert not check_base(good, {}).comparable
