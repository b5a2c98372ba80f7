"""Published facts that a data file may have lost: units and tolerances of OlympiadBench.

Upstream states them beside the answer; a file of the neutral schema has no place for them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from training.benchmarks.schema import Question

_OLYMPIAD: dict[str, tuple[str, str | None]] = {
    "1760": ("degrees", None),
    "2253": ("minutes", None),
    "2334": ("km", None),
    "2419": ("cm^2", None),
    "2426": ("km/h", None),
    "2444": ("min", None),
    "2522": ("minutes", None),
    "2592": ("%", "0.1"),
}


def with_published_facts(question: Question) -> Question:
    """An OlympiadBench question with its published unit and tolerance, where they were dropped."""
    number = question.id.rpartition("-")[2]
    if number not in _OLYMPIAD or question.unit is not None:
        return question
    unit, tolerance = _OLYMPIAD[number]
    return replace(
        question, unit=unit, tolerance=Fraction(tolerance) if tolerance is not None else None
    )
