"""One canonical key for a bare answer (docs/method.md section 2).

The text is reduced to its typography-free form, split at equality signs, and each side is read as
a closed form that a unit may follow. A name may stand before or after an equality sign. Two sides
with different values, a relation, a list or a second number are refused rather than guessed at.
"""

from __future__ import annotations

import re

from training.algorithms.answer_key.arithmetic import Arithmetic
from training.algorithms.answer_key.grammar import Grammar
from training.algorithms.answer_key.integers import NotExact
from training.algorithms.answer_key.plain_text import MAX_CHARS, plain
from training.algorithms.answer_key.units import NUMBER_WORDS, is_unit, read_scale
from training.algorithms.answer_key.value import Exact, exact

_MAX_SIDES = 6
_RELATION = re.compile(r"[<>≤≥≠±≡]|\\(?:leq?|geq?|lt|gt|neq?|pm|mp|in|equiv|sim)(?![A-Za-z])")
_IS = re.compile(r"([^0-9=]{1,200})\b(?:is|are|equals)\b(?: equal to\b)?:?(?=\s)")
_EQUALS = re.compile(r"={1,3}")
_APPROXIMATELY = re.compile(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_CURRENCY = re.compile(r"[€£¥₹]")

_LOOSE_EXPONENT = re.compile(r"[0-9.]\s+[eE][+-]?[0-9]")
_INDEX = re.compile(r"_\s*(?:\{[^{}]{0,40}\}|\w{1,10})|(?<=[A-Za-z}'])\([^()]{0,40}\)")
_NAME = re.compile(r"[A-Za-z\\\s_{}()|∠△,'.+*/-]{1,120}")
_NO_NAME = re.compile(r"\b(?:not|no|never|or|and|unknown|undefined|none)\b", re.I)


def label_of(answer: str, percent: bool) -> str:
    """Canonical key of a bare answer, which is its own key.

    `percent` says whether a percent sign divides by 100 or is a unit. Raises NotExact, with a
    short reason, where the answer has no exact canonical value.
    """
    label = _read(answer, percent)
    if not label.isdigit() and _read(label, percent) != label:
        raise NotExact("too complicated a value")
    return label


def _read(answer: str, percent: bool) -> str:
    text = _CURRENCY.sub(" ", plain(answer))
    if _RELATION.search(text):
        raise NotExact("a relation or several values, not one number")
    if _LOOSE_EXPONENT.search(text):
        raise NotExact("a space before an exponent")
    if is_word := _IS.match(text):
        text = f"{is_word[1]}={text[is_word.end() :]}"
    text = text.removeprefix("=")
    stated, *estimates = _APPROXIMATELY.split(text)
    sides = _EQUALS.split(stated)
    if len(sides) + len(estimates) > _MAX_SIDES:
        raise NotExact("too many equality signs")
    work = Arithmetic()
    if not stated.strip():  # nothing but an estimate
        sides = []
    labels = {label for side in sides if (label := _side(side, len(sides) > 1, work, percent))}
    approximate = [_side(estimate, False, work, percent) for estimate in estimates]
    labels = labels or set(filter(None, approximate[:1]))
    if len(labels) != 1:
        raise NotExact("two different values" if labels else "no number")
    return labels.pop()


def _side(text: str, named: bool, work: Arithmetic, percent: bool) -> str | None:
    """Label of one side of an equality, None where it is a name."""
    text = text.strip()
    if named and text == "e":  # an eccentricity, say, rather than Euler's number
        return None
    try:
        label = _number(text, work, percent).label()
    except NotExact:
        if _is_name(text):
            return None
        raise
    if len(label) > MAX_CHARS:
        raise NotExact(f"a value longer than {MAX_CHARS:,} characters")
    return label


def _is_name(text: str) -> bool:
    bare = _INDEX.sub("", text)
    letters = any(c.isalpha() for c in bare)
    return letters and bool(_NAME.fullmatch(bare)) and not _NO_NAME.search(bare)


def _number(text: str, work: Arithmetic, percent: bool) -> Exact:
    """Value of an expression that a scale word and a unit may follow."""
    if text.lower() in NUMBER_WORDS:
        return exact(NUMBER_WORDS[text.lower()])
    grammar = Grammar(text, work, percent)
    value = grammar.expression()
    rest = text[grammar.position :]
    while scale := read_scale(rest):
        value = work.multiply(value, exact(scale[0]))
        rest = rest[scale[1] :]
    if rest and not is_unit(rest):
        raise NotExact("something after the number that is neither an operation nor a unit")
    return value
