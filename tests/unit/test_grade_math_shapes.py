"""When two answers are the same: lists, thousands, blanks, per cent, symbols, names and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from training.benchmarks.math_bounds import unbounded
from training.benchmarks.math_equal import Judge
from training.benchmarks.math_key import keys
from training.benchmarks.verify_pool import Verified, VerifyPool


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with VerifyPool() as pool:
        yield Judge(pool)


SAME = [
    # three-digit groups
    ("100, 200, 300", "300,200,100"), ("\\{100,200\\}", "\\{200,100\\}"), ("10,100", "100, 10"),
    ("121, 144, 169", "169,144,121"), ("1,000, 2,000", "1000,2000"), ("1,100", "1 and 100"),
    ("1,000, 2,000", "2000, 1000"), ("1000", "1,000"), ("11,\\! 111,\\! 100", "11111100"),
    ("(2,251,252)", "(2, 251, 252)"), ("{100,200}", "200,100"), ("\\$1,000", "1000"),
    ("(1,000, 2)", "(1000,2)"),
    # a comma is decimal only against a number
    ("19 \\text{ and }43", "19,43"), ("\\pm 3", "-3,3"), ("5 \\text{ or } 7", "5,7"),
    ("2; 7", "2,7"), ("1.5", "1,5"),
    # blanks and dots
    ("3 1/2", "3.5"), ("1 000", "1000"), ("10 000 000", "10000000"), ("0.333...", "1/3"),
    ("0.1\\overline{6}", "0.1666..."), ("\\pi", "3.14159..."), ("5.", "5"),
    # per cent
    ("50\\%", "50 percent"), ("50\\%", "0.5"), ("50\\%", "50"), ("0.5\\%", "0.5\\%"),
    # units with powers
    ("4.5e33", "4.5 \\times 10^{33}\\mathrm{~erg~s^{-1}}"), ("5", "5\\,\\text{m s^{-1}}"),
    # symbols
    ("(0,\\infty)", "(0,∞)"), ("\\infty", "∞"), ("\\emptyset", "∅"), ("\\varnothing", "\\{ \\}"),
    # names
    ("(1,2,3)", "a=1, b=2, c=3"), ("(1,2)", "x=1 and y=2"), ("1,2", "x=1, y=2"),
    # times
    ("10:30", "10:30 a.m."), ("10:30 AM", "10:30\\text{ am}"), ("3:4", "9:12"), ("2:3", "4:6"),
]  # fmt: skip
DIFFERENT = [
    ("[100,200]", "100200"), ("(100,200)", "100200"), ("(2,251,252)", "2251252"),
    ("1,000, 2,000", "1,0,2,0"), ("1,000", "1, 0"), ("[100,200]", "[200,100]"), ("12", "1,23"),
    ("3 1/2", "31/2"), ("31/2", "3 1/2"), ("12", "1 2"), ("(1 2)", "12"),
    ("0.333...", "0.333"), ("0.333\\ldots", "0.333"), ("0.12...", "0.12"), ("1,2,\\ldots", "1,2"),
    ("50\\%", "0.5\\%"), ("0.5\\%", "50\\%"), ("(0,\\infty)", "[0,∞)"),
    ("(1,2,3)", "a=1,b=3,c=2"), ("(1,1,1)", "a=1, a=1, a=1"), ("(1,2)", "y=1, x=2"),
    ("10:30", "1:3"), ("10:30 am", "10:30 pm"), ("10:30", "10:31"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same_answer(judge: Judge, gold: str, answer: str) -> None:
    assert judge.judge(gold, answer).equal


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers(judge: Judge, gold: str, answer: str) -> None:
    assert not judge.judge(gold, answer).equal


@pytest.mark.parametrize("text", ["(100,200)", "$\\left(2,251,252\\right)$", "P = (100,200)"])
def test_numbers_in_brackets_are_no_thousands(text: str) -> None:
    assert not keys(text)


class SlowPool:
    """A pool in which every question hits the limit."""

    asked = 0

    def verify(self, gold: str, answer: str) -> Verified:
        self.asked += 1
        return Verified(None, "the limit was hit", limit_hit=True)


@pytest.mark.parametrize("shape", ["{}", "({})", "\\{{{}\\}}"])
def test_one_limit_hit_ends_a_comparison_of_parts(shape: str) -> None:
    pool = SlowPool()
    gold, answer = (shape.format(", ".join(f"{n}({i}x)" for i in range(2, 8))) for n in ("f", "g"))
    verdict = Judge(cast(VerifyPool, pool)).judge(gold, answer)
    assert (verdict.equal, verdict.limit_hit) == (False, True)
    assert pool.asked == 1


@pytest.mark.parametrize("text", ["\\binom{10^9}{5}", "\\dbinom{10^{9}}{5}", "\\binom{100000}{9}"])
def test_binomials_of_huge_numbers_are_not_asked(text: str) -> None:
    assert unbounded(text)
    assert not unbounded("\\binom{10}{5}")
