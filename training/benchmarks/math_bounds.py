"""Tell what math-verify would try to write out: power towers, huge factorials and binomials."""

from __future__ import annotations

import re

_TOWER = re.compile(r"(?:\^|\*\*)\s*[{(\s]*\d+\s*(?:\^|\*\*)|(?:\^|\*\*)\s*[{(\s]*-?\d{5,}")
_POWER = re.compile(r"\^\s*\{")
_NAMES = re.compile(r"[A-Za-z]")
_BIG_FACTORIAL = re.compile(r"\d{5,}\s*!|\)\s*!\s*!|!\s*\)\s*!|!!")
_BIG_BINOMIAL = re.compile(r"binom\s*\{?\s*(?:\d{5,}|\d+\s*(?:\^|\*\*)\s*\{?\s*(?:\d{2,}|[5-9]))")


def unbounded(text: str) -> bool:
    """True for what cannot be evaluated within any limit of time and memory."""
    patterns = (_TOWER, _BIG_FACTORIAL, _BIG_BINOMIAL)
    return any(p.search(text) for p in patterns) or any(
        "^" in exponent and not _NAMES.search(re.sub(r"\\(?:d?frac|cdot|times)", "", exponent))
        for exponent in (_group(text, match.end()) for match in _POWER.finditer(text))
    )


def _group(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]
