"""Number literals: the many spellings of one decimal number, and mixed numbers."""

from __future__ import annotations

import re
from fractions import Fraction

from training.algorithms.answer_key.integers import MAX_DIGITS, NotExact, parse_digits

_WHOLE = r"(?P<{0}>[1-9][0-9]{{0,2}}(?:{1}[0-9]{{3}})+)(?!{1}?[0-9])(?!{1})"
_NUMERAL = re.compile(
    r"\s*(?:"
    + "|".join(
        [
            _WHOLE.format("comma", ","),
            # a space groups digits only where no fraction follows: 5 100/3 stays ambiguous
            r"(?P<space>[1-9][0-9]{0,2}(?: [0-9]{3})+)(?! ?[0-9])(?!\s*(?:/|\\[dtc]?frac))",
            _WHOLE.format("mark", "_"),
            r"(?P<plain>[0-9]+)",
            r"(?=\.[0-9])",
        ]
    )
    + r")(?P<point>\.(?P<decimals>[0-9]*)"
    r"(?:\\(?:overline|bar)\s*(?:\{(?P<repeat>[0-9]+)\}|(?P<digit>[0-9])))?)?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+))?"
)
_COMMAS_OFF = re.compile(_NUMERAL.pattern.replace(r"(?P<comma>", r"(?P<comma>(?!)"))
_MIXED = re.compile(
    r"(?:\s*\\[dtc]?frac\s*(?:\{\s*(?P<a>[0-9]+)\s*\}|(?P<c>[0-9]))\s*"
    r"(?:\{\s*(?P<b>[0-9]+)\s*\}|(?P<d>[0-9]))"
    r"|\s+(?P<p>[0-9]+)\s*/\s*(?P<q>[0-9]+))"
)
_AFTER_MIXED = re.compile(r"\s*[\^!/.(_]|\s*\*\*|[0-9]")
_AMBIGUOUS_REPEAT = re.compile(r"\([0-9]")


def read_numeral(text: str, start: int, commas: bool) -> tuple[Fraction, int, bool] | None:
    """Number literal at `start`: its value, the position after it, and whether it is whole.

    `commas` says whether a comma may group digits here; inside parentheses it separates.
    Returns None where no literal starts; raises NotExact for one that is ambiguous or too long.
    """
    match = (_NUMERAL if commas else _COMMAS_OFF).match(text, start)
    if match is None or match.end() == start:
        return None
    whole = "".join(
        c
        for c in match["comma"] or match["space"] or match["mark"] or match["plain"] or ""
        if c.isdigit()
    )
    decimals = match["decimals"] or ""
    repeat = match["repeat"] or match["digit"] or ""
    power = match["exponent"] or "0"
    exponent = parse_digits(power.lstrip("+-")) * (-1 if power[0] == "-" else 1)
    if len(whole) + len(decimals) + len(repeat) + abs(exponent) > MAX_DIGITS:
        raise NotExact(f"a number longer than {MAX_DIGITS:,} digits")
    if match["point"] and _AMBIGUOUS_REPEAT.match(text, match.end()):
        raise NotExact("a decimal number followed by parentheses")
    value = Fraction(parse_digits(whole + decimals or "0"), 10 ** len(decimals))
    if repeat:
        value += Fraction(parse_digits(repeat), 10 ** len(decimals) * (10 ** len(repeat) - 1))
    value = value * 10**exponent if exponent >= 0 else value / 10**-exponent
    return value, match.end(), not match["point"] and not match["exponent"]


def read_mixed_part(text: str, start: int) -> tuple[Fraction, int] | None:
    """Proper fraction that makes a mixed number of the whole number before `start`.

    Returns None where none follows; raises NotExact where what follows could be a mixed number
    or a product, such as 2 5/3 or 1 1/2/3.
    """
    match = _MIXED.match(text, start)
    if match is None:
        return None
    top = match["a"] or match["c"] or match["p"]
    bottom = match["b"] or match["d"] or match["q"]
    if max(len(top), len(bottom)) > MAX_DIGITS:
        raise NotExact(f"a number longer than {MAX_DIGITS:,} digits")
    numerator, denominator = parse_digits(top), parse_digits(bottom)
    if not 0 < numerator < denominator or _AFTER_MIXED.match(text, match.end()):
        raise NotExact("two numbers side by side")
    return Fraction(numerator, denominator), match.end()
