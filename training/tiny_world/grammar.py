"""The problem grammar of the tiny world: ten kinds of arithmetic with an exact answer.

A kind is one sentence template, ranges to draw its numbers from, the expression that solves it
and expressions a careless solver would write.  The same table generates problems, recognises
them in text and gives their exact answer.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from training.tiny_world.expressions import evaluate

NAMES = ("Ava", "Ben", "Eli", "Ida", "Max", "Zoe")
THINGS = ("beads", "cups", "keys", "nuts", "pins", "shells")
_NUMBER = r"(0|[1-9][0-9]{0,5})"
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem.

    ``ranges`` gives the inclusive range of each number slot of ``template``; the slots ``sign``,
    ``name`` and ``things`` are words.  All expressions keep the order of the numbers.
    """

    name: str
    template: str
    ranges: Mapping[str, tuple[int, int]]
    right: str
    wrong: tuple[str, ...]


KINDS: tuple[Kind, ...] = (
    Kind(
        "sum",
        "What is {a} + {b}?",
        {"a": (10, 99), "b": (10, 99)},
        "{a}+{b}",
        ("{a}-{b}", "{a}*{b}"),
    ),
    Kind(
        "difference",
        "What is {a} - {b}?",
        {"a": (10, 99), "b": (10, 99)},
        "{a}-{b}",
        ("{a}+{b}", "{a}*{b}"),
    ),
    Kind(
        "product",
        "What is {a} * {b}?",
        {"a": (2, 99), "b": (2, 20)},
        "{a}*{b}",
        ("{a}+{b}", "{a}-{b}"),
    ),
    Kind(
        "precedence",
        "Compute {a} {sign} {b} * {c}.",
        {"a": (2, 99), "b": (2, 20), "c": (2, 9)},
        "{a}{sign}{b}*{c}",
        ("({a}{sign}{b})*{c}", "{a}{sign}{b}"),
    ),
    Kind(
        "brackets",
        "Compute ({a} {sign} {b}) * {c}.",
        {"a": (2, 50), "b": (2, 50), "c": (2, 9)},
        "({a}{sign}{b})*{c}",
        ("{a}{sign}{b}*{c}", "{a}{sign}{b}"),
    ),
    Kind(
        "remainder",
        "Find the remainder of {a} divided by {b}.",
        {"a": (20, 199), "b": (3, 19)},
        "{a}%{b}",
        ("{a}//{b}", "{a}-{b}"),
    ),
    Kind(
        "divisor",
        "Find the greatest common divisor of {a} and {b}.",
        {"a": (2, 20), "b": (2, 20)},
        "gcd({a},{b})",
        ("{a}%{b}", "{a}//{b}"),
    ),
    Kind(
        "multiples",
        "Add up all multiples of {a} from {a} to {b}.",
        {"a": (2, 9), "b": (20, 99)},
        "sum(range({a},{b}+1,{a}))",
        ("sum(range({a},{b},{a}))", "{a}*{b}"),
    ),
    Kind(
        "gain",
        "{name} has {a} {things} and gets {b} bags of {c}. How many {things} are there now?",
        {"a": (2, 60), "b": (2, 9), "c": (2, 20)},
        "{a}+{b}*{c}",
        ("{a}+{b}+{c}", "{a}*{b}+{c}"),
    ),
    Kind(
        "loss",
        "{name} fills {a} boxes with {b} {things} each and loses {c}. How many {things} are left?",
        {"a": (2, 9), "b": (2, 20), "c": (2, 15)},
        "{a}*{b}-{c}",
        ("{a}+{b}-{c}", "{a}*{b}+{c}"),
    ),
)
KIND_NAMES = tuple(kind.name for kind in KINDS)
_WORDS = {"sign": ("+", "-"), "name": NAMES, "things": THINGS}


def make_problem(rng: random.Random, kind: str | None = None) -> str:
    """Draw one problem text, of the named kind or of a uniformly drawn one."""
    chosen = _by_name()[kind] if kind is not None else rng.choice(KINDS)
    values: dict[str, object] = {slot: rng.choice(words) for slot, words in _WORDS.items()}
    values |= {slot: rng.randint(low, high) for slot, (low, high) in chosen.ranges.items()}
    if chosen.name == "divisor":  # numbers drawn apart would mostly have the divisor 1
        factor = rng.randint(2, 9)
        values |= {slot: factor * rng.randint(*chosen.ranges[slot]) for slot in chosen.ranges}
    return chosen.template.format(**values)


def kind(problem: str) -> str | None:
    """Name of the kind a problem text belongs to, or None when it is outside the grammar."""
    found = _match(problem)
    return None if found is None else found[0].name


def truth(problem: str) -> str | None:
    """Exact answer of a problem text, or None when it is outside the grammar or has none."""
    expression = right_expression(problem)
    return None if expression is None else evaluate(expression)


def right_expression(problem: str) -> str | None:
    """Python expression that solves the problem, or None outside the grammar."""
    found = _match(problem)
    return None if found is None else found[0].right.format(**found[1])


def wrong_expressions(problem: str) -> tuple[str, ...]:
    """Plausible wrong expressions for a problem; empty outside the grammar."""
    found = _match(problem)
    return () if found is None else tuple(text.format(**found[1]) for text in found[0].wrong)


@cache
def _by_name() -> dict[str, Kind]:
    return {entry.name: entry for entry in KINDS}


@cache
def _patterns() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    return tuple((entry, re.compile(_pattern(entry.template))) for entry in KINDS)


def _pattern(template: str) -> str:
    """Regular expression of a template; a slot that comes back must hold the same text."""
    parts: list[str] = []
    seen: set[str] = set()
    position = 0
    for slot in _SLOT.finditer(template):
        parts.append(re.escape(template[position : slot.start()]))
        name, position = slot[1], slot.end()
        choices = "|".join(map(re.escape, _WORDS[name])) if name in _WORDS else _NUMBER
        parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>{choices})")
        seen.add(name)
    return "".join(parts) + re.escape(template[position:])


def _match(problem: str) -> tuple[Kind, dict[str, str]] | None:
    for entry, pattern in _patterns():
        found = pattern.fullmatch(problem)
        if found is not None:
            return entry, found.groupdict()
    return None
