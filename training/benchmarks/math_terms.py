r"""Find the mathematics in a sentence: numbers, formulas and brackets, each as one whole.

A number is only a value together with what belongs to it. `5 \times 10^{33}`, `5n`, `5:3` and
`(5, 6)` all hold a 5 and none of them means it, so a sentence is first cut into terms, and each
term is kept whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,500})\$\$|(?<!\\)\$(?P<b>[^$]{1,500}?)(?<!\\)\$"
    r"|\\\((?P<c>.{1,500}?)\\\)|\\\[(?P<d>.{1,500}?)\\\]",
    re.DOTALL,
)
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_SCRIPT = re.compile(rf"[_^]\s*{_GROUP}")
_COMMAND = re.compile(r"\\(?:begin|end|text\w*|mbox|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORDS = re.compile(r"\b(?!and\b)[A-Za-z]{3,}")
_MAX_CHARS = 2000
_MAX_BRACKET = 300
_CLOSING = {"(": ")]", "[": ")]", "{": "}"}

# The kinds of things a sentence is made of, in the order in which they are tried.
_PIECE = re.compile(
    r"(?P<ordinal>\d+(?:st|nd|rd|th)\b|\d+-[A-Za-z]{2,}[\w-]*)"
    r"|(?P<number>(?:(?:\\?\$|[€£])\s?)?(?:\d{1,3}(?:(?:,|\{,\}|\\,|,\\!)\d{3})+(?!\d)|\d+|(?=\.\d))"
    r"(?:\.\d+)?(?:[eE][-+]?\d+)?(?::\d+)*(?:\s*[ap]\.?m\b\.?)?(?:\s*(?:\\?%|½|percent\b))?|½)"
    rf"|(?P<unit>\\(?:text\w*|mbox|mathrm)\s*{_GROUP})"
    r"|(?P<space>\\[,;:! ]|~|\\q?quad(?![A-Za-z])|\s+)"
    r"|(?P<operator>\\(?:times|cdot|div|pm|mp|ast|over|leq?|geq?|lt|gt|neq?|cup|cap|setminus)(?![A-Za-z])"
    r"|\*\*|[-+−*/×·÷^_=±<>≤≥:∪∩])"
    r"|(?P<function>(?:sin|cos|tan|log|ln|sqrt|exp)\b)"
    rf"|(?P<atom>\\[A-Za-z]+(?:\s*(?:\[[^\]]*\])?\s*{_GROUP})*|[π∞√])"
    r"|(?P<word>[A-Za-z](?:[\w'’-]*\w)?)"
)
_PRICE = re.compile(r"\$\s?\d")
_SCALE = re.compile(r"\s+(?:hundred|thousand|million|billion|trillion|dozen)\b", re.IGNORECASE)
_TIMES = re.compile(r"\s+x\s+(?=\d)|x(?=\d)")
_SPACE = re.compile(r"(?:\s|\\[,;:! ]|~)*")
_SIGN = re.compile(r"(?:[-+−±]|\\pm(?![A-Za-z]))\s?")
_LEFT = re.compile(r"\\left\s*|\\(?=\{)")
_UNIT = re.compile(r"[A-Za-z\\]+\s*[/^]")
_LONE_NAME = re.compile(r"\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?'*\s*")
_HOLDS_VALUE = re.compile(r"[\d½π√∞]|\\[a-z]")
_SIGNS = ("+", "-", "−", "±", r"\pm")
_SHORT_WORDS = frozenset({"a", "A", "I"})


@dataclass(frozen=True)
class Term:
    """A value, a word or another sign of a sentence. `text` is what it says, without dollars."""

    text: str
    is_value: bool


@dataclass(frozen=True)
class _Piece:
    kind: str
    text: str
    end: int


def is_prose(text: str) -> bool:
    """True when words stand in the text beside its mathematics; two prices enclose no formula."""
    if len(text) > _MAX_CHARS:
        return True
    return _has_words(FORMULA.sub(lambda m: m[0] if _two_prices(m[0]) else " ", text))


def _two_prices(formula: str) -> bool:
    """True for what two currency signs enclose: `$5 and Mary has $`."""
    return bool(_PRICE.match(formula)) and _has_words(formula)


def _has_words(text: str) -> bool:
    return bool(_WORDS.search(_COMMAND.sub(" ", _SCRIPT.sub(" ", text))))


def terms(sentence: str) -> list[Term]:
    """The terms of a sentence in order; at most its first 2,000 characters are looked at."""
    sentence = sentence[:_MAX_CHARS]
    found: list[Term] = []
    place, after_value = 0, False
    while place < len(sentence):
        term, place = _term(sentence, place)
        if after_value and term.is_value and _UNIT.match(term.text):
            term = Term(term.text, False)  # the m/s^2 of `3 m/s^2`
        found.append(term)
        after_value = term.is_value or (after_value and not term.text.strip())
    return found


def _term(text: str, start: int) -> tuple[Term, int]:
    """The term that begins at `start`, with all that belongs to it, and where it ends."""
    signed = text.startswith(_SIGNS, start) and not text[start - 1 : start].isalnum()
    first = _operand(text, _sign_end(text, start)) if signed else _operand(text, start)
    if first is None:
        piece = _piece(text, start)
        return Term(piece.text, False), piece.end
    latest: _Piece = first
    while (further := _extension(text, latest)) is not None:
        latest = further
    if latest is first and first.kind == "formula":
        return Term(first.text.strip(), not _LONE_NAME.fullmatch(first.text)), first.end
    whole = text[start : latest.end].strip()
    if first.kind in ("word", "function") and not re.search(r"\d", text[first.end : latest.end]):
        return Term(whole, False), latest.end
    return Term(whole, bool(_HOLDS_VALUE.search(whole))), latest.end


def _extension(text: str, latest: _Piece) -> _Piece | None:
    """What stands behind the piece and still belongs to its term; None at the term's end."""
    end = latest.end
    scale = _SCALE.match(text, end)
    if scale and latest.kind == "number":
        return _Piece("scale", scale[0], scale.end())
    if text.startswith("!", end) and not text.startswith("!=", end) and latest.kind != "word":
        return _Piece("factorial", "!", end + 1)
    times = _TIMES.match(text, end)
    if times and text[end - 1].isdigit():
        return _operand(text, times.end())
    place = _behind_space(text, end)
    operator = _PIECE.match(text, place)
    if operator and operator.lastgroup == "operator":
        return _operated(text, latest, place > end, operator)
    operand = _operand(text, place)
    if operand is None:
        return None
    if place == end:
        return operand if latest.kind != "word" or operand.kind == "bracket" else None
    mathematical = operand.kind in ("atom", "function") or (
        latest.kind in ("function", "atom") and operand.kind in ("number", "bracket")
    )
    return operand if mathematical and latest.kind != "word" else None


def _operated(
    text: str, latest: _Piece, spaced_before: bool, operator: re.Match[str]
) -> _Piece | None:
    """The operand behind an operator, unless the sign is punctuation: `matrix: 5`, `5 - a pair`."""
    place = _behind_space(text, operator.end())
    spaced = place > operator.end()
    if operator[0] == ":" and (latest.kind == "word" or spaced != spaced_before):
        return None
    if latest.kind == "word" and len(latest.text) > 1 and operator[0] in _SIGNS:
        return None  # the sign belongs to what follows: `equals -1`
    operand = _operand(text, _sign_end(text, place))
    if operand is None or (spaced and operand.text in _SHORT_WORDS):
        return None
    if operand.kind == "word" and len(operand.text) > 2:
        return None if spaced or operator[0] in ":/-" else operand
    return operand


def _behind_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _sign_end(text: str, start: int) -> int:
    sign = _SIGN.match(text, start)
    return sign.end() if sign else start


def _operand(text: str, start: int) -> _Piece | None:
    """A number, formula, bracket, name or function at `start`; None for anything else."""
    formula = FORMULA.match(text, start)
    if formula:
        content = next(filter(None, formula.groups()))
        if not _two_prices(formula[0]):
            return _Piece("formula", content, formula.end())
    bracket = _bracket(text, start)
    if bracket is not None:
        return bracket
    match = _PIECE.match(text, start)
    if match is None or match.lastgroup not in ("number", "function", "atom", "word"):
        return None
    if match.lastgroup == "word" and not match[0].isascii():
        return None
    return _Piece(match.lastgroup, match[0], match.end()) if match[0].strip() else None


def _bracket(text: str, start: int) -> _Piece | None:
    """A pair of brackets with mathematics inside; half-open intervals pair with each other."""
    opening = _LEFT.match(text, start)
    place = opening.end() if opening else start
    place += text.startswith("\\{", place)
    if place >= len(text) or text[place] not in _CLOSING:
        return None
    depth = 0
    for end in range(place, min(len(text), place + _MAX_BRACKET)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0:
            inside = text[place + 1 : end]
            if text[end] not in _CLOSING[text[place]] or is_prose(inside):
                return None
            return _Piece("bracket", text[start : end + 1], end + 1)
    return None


def _piece(text: str, start: int) -> _Piece:
    match = _PIECE.match(text, start)
    if match is None or match.end() == start:
        return _Piece("sign", text[start], start + 1)
    kind = match.lastgroup or "sign"
    return _Piece(kind, " " if kind == "space" else match[0], match.end())
