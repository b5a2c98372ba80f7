"""Answers that stand in a sentence: which value is stated, and when none is."""

from __future__ import annotations

import pytest

from training.benchmarks.math_reading import read_any, read_stated

STATED = [
    ("The remainder when $2^{10}$ is divided by $7$ is $5$.", "5"),
    ("For $n = 10$, the sum is $5$.", "5"),
    ("For n = 10, the sum is 5 exactly.", "5"),
    ("The sum of the first 3 terms is 5 then.", "5"),
    ("The number of integers not divisible by 3 is $5$.", "5"),
    ("The roots are $5$ and $6$.", "5, 6"),
    ("the roots are 5, 6 and 7 here", "5, 6, 7"),
    ("either 5 or 6", "5, 6"),
    ("the lengths are 5 cm and 6 cm", "5, 6"),
    ("The point is (5, 6)", "(5, 6)"),
    ("(5, 6) is the point", "(5, 6)"),
    ("the interval [5, 6]", "[5, 6]"),
    ("the set {5, 6, 7}", "{5, 6, 7}"),
    ("the domain is (-\\infty, 5) \\cup (5, \\infty) here", "(-\\infty, 5) \\cup (5, \\infty)"),
    ("The ratio equals 2:3", "2:3"),
    ("The train arrives at 10:30 am then.", "10:30 am"),
    ("about 4.5 \\times 10^{33} ergs per second in total", "4.5 \\times 10^{33}"),
    ("The answer is roughly 3 x 10^8 metres away", "3 x 10^8"),
    ("4.5 \\times 10^{33}\\mathrm{~erg~s^{-1}}", "4.5 \\times 10^{33}\\mathrm{~erg~s^{-1}}"),
    ("It costs 5 million dollars because of that", "5 million"),
    ("5^n for all n", "5^n"),
    ("x^5 for every x", "x^5"),
    ("the polynomial is x^2 + 3x - 4 here", "x^2 + 3x - 4"),
    ("the function is f(x) = 2x for all real x", "f(x) = 2x"),
    ("5, which is 2 more than 3", "5"),
    ("18 because 2 * 9 = 18", "18"),
    ("There are 5 ways to seat 3 people.", "5"),
    ("There are 3 boys and 4 girls, so the total is 7", "7"),
    ("$45$ minutes are needed for the $3$ men", "45"),
    ("The value of $\\sin 30^\\circ$ is $\\frac12$.", "\\frac12"),
    ("Therefore x is equal to 5 or -5 only", "5, -5"),
    ("The minimum is 5 at x = 3.", "5"),
    ("the equation has 2 real roots", "2"),
    ("Out of 12 students, 5 passed.", "5"),
    ("In 3 years she will be 5.", "5"),
    ("If $x = 2$ then $y = 5$.", "y = 5"),
    ("The minimum is achieved at x = 2 and equals -1.", "-1"),
    ("It is $\\frac{1}{3}$ (approximately 0.333).", "\\frac{1}{3}"),
    ("The largest 3-digit number is the 5th term, that is 997", "997"),
    ("The chance is $\\frac{3}{4}$, or 75%.", "\\frac{3}{4}"),
    ("12 apples; Tom's share is 4.", "12"),
    ("7 (the other root is 3).", "7"),
    ("18 dollars, the tax is 2 dollars.", "18"),
    ("5 while the other is 3.", "5"),
    ("negative 5 degrees then", "-5"),
    ("minus 5 degrees then", "-5"),
    ("16/3, or approximately 5.33.", "16/3"),
]  # fmt: skip
NOT_STATED = [
    "not 5", "not equal to 5", "cannot be 5", "at most 5", "at least $5$", "between 5 and 6",
    "more than 5", "No solution for 5", "There is no solution for n = 5", "all multiples of 5",
    "5 hours 30 minutes", "5 feet and 6 inches", "5 to 6 apples", "the ratio is 2 to 3",
    "The probability equals 1 in 4", "5 out of 6 people", "2, 4, 6, ... forever",
    "10 out of every 15",
    "5 choose 2", "5 squared equals the area",
    "John has $5 and Mary has $6", "unknown (see step 5)",
    "5 or more apples", "5 at most", "> 5 apples", "all integers n >= 5", "the opposite of 5",
    "5 tenths of it", "10 to the power of 6",
    "None of the 5 options", "half of 12 left",
    "$12 and the change is $8", "The root is 5 and the sum is 6", "5 is less than 6",
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "answer"), STATED)
def test_the_value_a_sentence_states(sentence: str, answer: str) -> None:
    assert read_stated(f"Final Answer: {sentence}").answer == answer


@pytest.mark.parametrize("sentence", NOT_STATED)
def test_a_sentence_that_states_no_single_value(sentence: str) -> None:
    assert read_stated(f"Final Answer: {sentence}").answer is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("the ratio is 2:3", "2:3"),
        ("the point is (2, 3)", "(2, 3)"),
        ("The value is 3x.", "3x"),
        ("it is log 5", "log 5"),
        ("There are 5 boys and 7 girls, so 12 children in total.", "12"),
        ("He has 5 apples and 7 pears, hence 12 fruits.", "12"),
        ("not 18", None),
        ("mod 3", None),
        ("it is base 5", None),
        ("the area is 5 x", None),
        ("18 and a half", None),
        ("So he has 5 apples. That leaves 3.", "3"),
        ("Adding 2 and 3 gives 5", "5"),
        ("Here is a matrix: $\\frac{1}{2}$", "\\frac{1}{2}"),
    ],
)
def test_the_last_value_of_a_running_text_is_whole(text: str, answer: str | None) -> None:
    assert read_any(text).answer == answer
