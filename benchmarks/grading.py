"""Graded answers a second, ours against math-verify alone, on the same answers in one process each.

    python benchmarks/grading.py [--repeats 3]

Ours reads the response, compares keys and asks math-verify's process where no key decides;
math-verify alone parses key and response and compares them, in this process and without limits.
Plain numbers are distinct, so that no cache helps either side. The best of the repeats counts.
"""

import argparse
import logging
import random
import time
from collections.abc import Callable

from math_verify import parse, verify

from training.benchmarks.grading import Grader
from training.benchmarks.math_key import keys
from training.benchmarks.schema import AnswerKind, Question

Pair = tuple[str, str]
COUNT = {"plain numbers": 2000, "fractions and roots": 400, "tuples and intervals": 200,
         "expressions": 100}  # fmt: skip


def pairs(kind: str, draw: random.Random) -> list[Pair]:
    """Key and response, half of them equal."""
    made = []
    for i in range(COUNT[kind]):
        n, m = draw.randrange(10**9), draw.randrange(2, 10**6)
        other = n + (i % 2)
        if kind == "plain numbers":
            made.append((str(n), f"Final Answer: {other:,}"))
        elif kind == "fractions and roots":
            made.append(
                (f"\\frac{{{n}}}{{{m}}}", f"Final Answer: $\\dfrac{{{other}}}{{{m}}}$")
                if i % 4 < 2
                else (
                    f"{n % 97 + 1}\\sqrt{{{m}}}",
                    f"Final Answer: ${other % 97 + 1}\\sqrt{{{m}}}$",
                )
            )
        elif kind == "tuples and intervals":
            low, high = n % 1000, 1000 + m
            made.append((f"({low}, {high}]", f"Final Answer: $({low + i % 2}, {high}]$"))
        else:
            a, b = n % 50 + 1, m % 50 + 1
            made.append((f"{a}x^2 + {b}x", f"Final Answer: $x({a}x + {b + i % 2})$"))
    return made


def ours(made: list[Pair], grader: Grader) -> list[bool]:
    """Our verdicts."""
    return [
        grader.grade_text(AnswerKind.MATH, Question("q", "", gold), answer).correct is True
        for gold, answer in made
    ]


def theirs(made: list[Pair]) -> list[bool]:
    """math-verify's verdicts on the same keys and responses."""
    return [
        verify(parse(f"${gold}$", parsing_timeout=None), parse(answer, parsing_timeout=None),
               timeout_seconds=None)
        for gold, answer in made
    ]  # fmt: skip


def best(work: Callable[[], list[bool]], repeats: int) -> tuple[float, list[bool]]:
    """Shortest time of the repeats, and the verdicts."""
    shortest, verdicts = float("inf"), []
    for _ in range(repeats):
        keys.cache_clear()
        started = time.perf_counter()
        verdicts = work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest, verdicts


def main() -> None:
    """Print one line a kind of answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    logging.disable(logging.CRITICAL)
    grader = Grader()
    grader.grade_text(AnswerKind.MATH, Question("q", "", "x+1"), "Final Answer: $1+x$")
    print(f"{'answers':24}{'ours/s':>10}{'theirs/s':>10}{'ratio':>8}{'agree':>8}")
    for kind in COUNT:
        made = pairs(kind, random.Random(0))
        mine, my_verdicts = best(lambda made=made: ours(made, grader), repeats)  # type: ignore[misc]
        other, their_verdicts = best(lambda made=made: theirs(made), repeats)  # type: ignore[misc]
        agree = sum(a == b for a, b in zip(my_verdicts, their_verdicts, strict=True))
        print(
            f"{kind:24}{len(made) / mine:10.0f}{len(made) / other:10.0f}"
            f"{other / mine:8.1f}{agree / len(made):8.1%}"
        )
    grader.close()


if __name__ == "__main__":
    main()
