r"""Answers as text: what may differ between two spellings of one answer, and what may not.

Layout, symbols and a time of day are compared by their characters. A blank between two digits is
no layout (`3 1/2` is not `31/2`) unless it groups thousands; an ellipsis says that more follows.
"""

from __future__ import annotations

import re

_SYMBOLS = (
    (re.compile(r"∞"), r"\\infty "),
    (re.compile(r"…|\\l?dots(?![A-Za-z])"), "..."),
    (re.compile(r"∅|\\varnothing(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
)
_LAYOUT = re.compile(r"\\[!,;: ]|\\left|\\right|[\s$]|(?<=_|\^)\{(?=\w\})|(?<=[_^{]\w)\}")
_DIGIT_GAP = re.compile(r"(?<=\d)(?:\s|~|\\[,;: !])+(?=\d)(?!\d{3}(?!\d))")
_KEPT_GAP = "␣"
_ELLIPSIS = re.compile(r"(?:(?<!\.)\.{2,}+|…|\\[lcv]?dots[a-z]?)[\s$)}\]]*+$")
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minutes>\d{1,2})(?P<seconds>:\d{2})?(?:(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)
_TEXT_COMMAND = re.compile(r"\\(?:text\w*|mbox|mathrm)\s*|[{}]")


def spelled(answer: str) -> str:
    r"""The answer with one spelling of each symbol: `∞` is `\infty`, `∅` `\emptyset`, `…` dots."""
    for pattern, command in _SYMBOLS:
        answer = pattern.sub(command, answer)
    return answer.strip()


def compact(answer: str) -> str:
    """The answer without layout. A blank between digits stays, unless it groups thousands."""
    return _LAYOUT.sub("", _DIGIT_GAP.sub(_KEPT_GAP, answer))


def latex(answer: str) -> str:
    """The answer as math-verify expects it: one formula between dollar signs."""
    text = answer.strip().replace("$ $", " ").strip("$").strip()
    return f"${text}$"


def has_digit_gap(answer: str) -> bool:
    """Whether two numerals stand side by side, which math-verify would read as one or multiply."""
    return _KEPT_GAP in compact(answer) and bool(re.fullmatch(r"[\d.␣()]+", compact(answer)))


def goes_on(answer: str) -> bool:
    """Whether a decimal or a list ends in an ellipsis; behind a whole number it says nothing."""
    found = _ELLIPSIS.search(answer)
    return found is not None and bool(re.search(r"[.,]", answer[: found.start()]))


def same_clock(gold: str, answer: str) -> bool | None:
    """Compare times of day; None where these are none.

    A key such as `10:30` is a time, which `1:3` does not equal; against the key `3:4` an answer
    `9:12` is a ratio. "am" and "pm" may be left out, but not differ.
    """
    times = [_CLOCK.fullmatch(_TEXT_COMMAND.sub("", compact(t)).strip(".")) for t in (gold, answer)]
    first, second = times
    if first is None or second is None or not _is_time(first):
        return None
    halves = {m["half"].lower() for m in (first, second) if m["half"]}
    parts = [(int(m["hour"]), m["minutes"], m["seconds"]) for m in (first, second)]
    return parts[0] == parts[1] and len(halves) < 2


def _is_time(match: re.Match[str]) -> bool:
    return len(match["minutes"]) == 2 and int(match["hour"]) <= 24 and int(match["minutes"]) < 60
