"""A key that is spelled as NumPy's code, of which Minerva has one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from training.benchmarks.grading import Grader
from training.benchmarks.schema import AnswerKind, Question


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    found = Grader()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("answer", "equal"),
    [
        ("np.arcsin(10/13)", True),
        (r"\arcsin(10/13)", True),
        (r"\arcsin \frac{10}{13}", True),
        (r"\arcsin(10/14)", False),
        (r"\arccos(10/13)", False),
        ("10/13", False),
    ],
)
def test_a_numpy_function_is_the_function(grader: Grader, answer: str, equal: bool) -> None:
    question = Question("q", "?", "np.arcsin(10/13)")
    verdict = grader.grade_text(AnswerKind.MINERVA, question, f"Final Answer: ${answer}$")
    assert verdict.correct is equal
