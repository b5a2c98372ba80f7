"""Words after a number: what is counted or measured, and words that scale it."""

from __future__ import annotations

import re

_DEGREES = re.compile(r"\s*(?:°|\^\s*\{?\s*\\circ\s*\}?|\\(?:degree|circ)(?![A-Za-z]))\s*[CF]?")
_SCALE = re.compile(r"\s*(hundred|thousand|million|billion|trillion|dozen)s?(?![A-Za-z])", re.I)
_UNIT = r"[A-Za-z°µμΩ]{1,20}\.?(?: ?\^ ?\{?-?[1-4]\}?)?"
_UNITS = re.compile(rf"\s*{_UNIT}(?:(?: ?(?:[/*-]|\\cdot) ?| {{1,2}}){_UNIT}){{0,5}}\s*")
_WORD = re.compile(r"[A-Za-z°µμΩ]+")
_MAX_CHARS = 80

_SCALES = {
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
# fmt: off
_OF_ONE_LETTER = {"m", "s", "g", "h", "l", "L", "N", "J", "W", "V"}
_WITHOUT_SPACE = {
    "N", "J", "W", "V", "nm", "mm", "cm", "dm", "km", "in", "ft", "yd", "mi", "mg", "kg", "lb",
    "lbs", "oz", "ml", "mL", "cl", "ms", "min", "sec", "hr", "hrs", "mph", "kmh", "kph", "Hz",
    "kHz", "MHz", "Pa", "kPa", "kJ", "kW", "kWh", "eV", "mol", "rad", "deg", "degrees", "USD",
    "EUR", "GBP", "dollars", "cents", "euros",
}
_NEVER = {  # after these the number is not the answer, or not all of it
    "or", "and", "to", "not", "no", "none", "if", "when", "where", "because", "since", "so", "but",
    "about", "approximately", "approx", "around", "roughly", "at", "least", "most", "more", "less",
    "than", "mod", "modulo", "pmod", "base", "over", "times", "plus", "minus", "squared", "cubed",
    "factorial", "half", "halves", "third", "thirds", "quarter", "quarters", "of", "is", "are",
    "infinity", "inf", "nan", "undefined", "unknown", "maybe", "either", "both", "through",
    "until", "vs", "versus", "ratio", "remainder", "root", "below", "negative", "zero", "doubled",
    "tripled", "fourth", "fourths", "fifth", "fifths", "sixth", "sixths", "seventh", "sevenths",
    "eighth", "eighths", "ninth", "ninths", "tenth", "tenths", "eleventh", "elevenths", "twelfth",
    "twelfths", "hundredth", "hundredths", "thousandth", "thousandths", "quadrillion",
    "quintillion", "bn", "mn", "lakh", "lakhs", "crore", "crores",
}
_COUNTS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)
# fmt: on
NUMBER_WORDS = {word: number for number, word in enumerate(_COUNTS)}
"""Numbers that are read when written as one word."""


def read_scale(rest: str) -> tuple[int, int] | None:
    """Factor of a scale word at the start of `rest` and where it ends, None where none stands."""
    match = _SCALE.match(rest)
    return (_SCALES[match[1].lower()], match.end()) if match else None


def is_unit(rest: str) -> bool:
    """Whether the text after a number only says what is counted or measured.

    Up to six words; one letter only where it is a common unit, since it is more often a variable;
    without a space before it only a common unit.
    """
    if _DEGREES.fullmatch(rest):
        return True
    if len(rest) > _MAX_CHARS or not _UNITS.fullmatch(rest):
        return False
    words = _WORD.findall(rest)
    if not rest[0].isspace() and words[0] not in _WITHOUT_SPACE:
        return False
    return all(
        word in _OF_ONE_LETTER if len(word) == 1 else word.lower() not in _NEVER for word in words
    )
