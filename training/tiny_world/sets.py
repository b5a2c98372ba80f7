"""Fixed development and held-out problems of the tiny world.

The two sets are disjoint, the same for every seed, and kept out of the warm start.  Choices are
made on the development set; the held-out set is only ever reported.
"""

import random
from functools import cache
from typing import Literal, TypedDict

from training.tiny_world.grammar import KIND_NAMES, make_problem, truth

Split = Literal["development", "held_out"]
SIZE = 200
_SEEDS: dict[Split, int] = {"development": 31, "held_out": 47}


class Problem(TypedDict):
    """One evaluation problem with its exact answer and its kind."""

    id: str
    problem: str
    answer: str
    kind: str


def problem_set(split: Split) -> list[Problem]:
    """The ``SIZE`` different problems of a split; kinds alternate, so prefixes are balanced."""
    return [problem.copy() for problem in _sets()[split]]


def excluded_problems() -> frozenset[str]:
    """Texts of both sets, which no warm start may show."""
    return frozenset(problem["problem"] for problems in _sets().values() for problem in problems)


@cache
def _sets() -> dict[Split, list[Problem]]:
    taken: set[str] = set()
    return {split: _draw(split, seed, taken) for split, seed in _SEEDS.items()}


def _draw(split: Split, seed: int, taken: set[str]) -> list[Problem]:
    rng = random.Random(seed)
    problems: list[Problem] = []
    while len(problems) < SIZE:
        kind = KIND_NAMES[len(problems) % len(KIND_NAMES)]
        text = make_problem(rng, kind)
        answer = truth(text)
        if text in taken or answer is None:
            continue
        taken.add(text)
        name = f"{split}-{len(problems):03}"
        problems.append(Problem(id=name, problem=text, answer=answer, kind=kind))
    return problems
