"""The records every benchmark, grader and report speaks in.

A `Question` is what a benchmark asks, a `Grade` is what a grader says about one response.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class AnswerKind(StrEnum):
    """What an answer is, which decides how it is asked for, read and compared."""

    MATH = "math"
    MINERVA = "minerva"
    OLYMPIAD = "olympiad"
    CHOICE = "choice"
    BBEH = "bbeh"
    CODE = "code"


@dataclass(frozen=True)
class Question:
    """One question of a benchmark.

    `answer` is the key: for a choice its letter, for code the reference solution.
    `unit` and `tolerance` (absolute) are set where a benchmark states them apart from the key.
    `tests` and `entry_point` belong to code; neither is ever part of a prompt.
    """

    id: str
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    subject: str | None = None
    unit: str | None = None
    tolerance: Fraction | None = None
    tests: str | None = None
    entry_point: str | None = None


class GradeStatus(StrEnum):
    """How a grade came about.

    `graded`: an answer was read and judged. `unparsed`: no answer could be read, which counts as
    wrong. `infra`: our own machinery failed, so the response is dropped, never scored.
    """

    GRADED = "graded"
    UNPARSED = "unparsed"
    INFRA = "infra"


@dataclass(frozen=True)
class Grade:
    """The verdict on one response.

    `correct` is None exactly when `status` is infra. `key_equal` and `verify_equal` are the
    verdicts of our canonical key and of math-verify; None where that judge was not asked or could
    not read one of the two answers. `undecided` marks a wrong answer that math-verify could not
    settle within its limits, so that a report can show how many there are.
    """

    prediction: str | None
    correct: bool | None
    reason: str
    status: GradeStatus = GradeStatus.GRADED
    key_equal: bool | None = None
    verify_equal: bool | None = None
    undecided: bool = False

    @staticmethod
    def unparsed(reason: str) -> Grade:
        """No answer could be read: wrong, and counted as unparsed."""
        return Grade(None, False, reason, GradeStatus.UNPARSED)

    @staticmethod
    def infra(reason: str, prediction: str | None = None) -> Grade:
        """Our machinery failed: neither right nor wrong."""
        return Grade(prediction, None, reason, GradeStatus.INFRA)
