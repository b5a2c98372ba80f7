"""Read the value that a sentence states, or none where it states no single one.

The value stands behind the last "is": what comes before it describes the question ("the sum of the
first 3 terms is 5"), unless the sentence begins with a value of its own. A sentence that denies,
bounds or doubts a value, or names two, states none: taking the first number of it would be a guess,
and a guess that hits the key is a wrong score.
"""

from __future__ import annotations

import re

from training.benchmarks.math_key import keys
from training.benchmarks.math_terms import terms

_FIRST_MARK = 0xE000  # values stand as characters of Unicode's private area in a marked sentence
_MAX_VALUES = 200
_V = "[\ue000-\ue0ff]"
_VERB = (
    r"(?:\b(?:is|are|was|were|equals|becomes?|will\s+be|gives?|makes?|leaves?|yields?)\b"
    r"|(?<![<>!])[=≈:：→⇒])"
)
_FILLER = (
    r"(?:exactly|approximately|about|roughly|around|only|simply|just|therefore|thus|also|now|then"
    r"|equal\s+to|given\s+by|either|both|the|an?|at|total\s+of|point|interval|set|pair)\b"
)
_STATES = re.compile(rf"{_VERB}[\s:]*(?:{_FILLER}[\s:]*)*(?={_V})", re.IGNORECASE)
_COPULA = re.compile(_VERB, re.IGNORECASE)
_OPENING = re.compile(
    r"^\s*(?:if|for|when|since|because|given|with|after|as|assuming|suppose|let|where|while"
    r"|out\s+of|in|of|among)\b(?:.*(?:,|(?=\bthen\b))\s*(?=(?:then|the|we|it|there|so|our|this|its)\b)"
    rf"|[^,]*[A-Za-z],\s*(?={_V}))",
    re.IGNORECASE | re.DOTALL,
)
_BESIDES = re.compile(
    r",?\s*\b(?:because|since|which|where|when|as|so\s+that|such\s+that|if|given|provided)\b",
    re.IGNORECASE,
)
_WHICH = re.compile(r"\bwhich$", re.IGNORECASE)
_HEDGE = re.compile(
    r"[<>≤≥]|\b(?:not|no|never|cannot|without|neither|nor|none|unknown|undefined|impossible|unable|except"
    r"|between|at\s+(?:least|most)|(?:more|less|greater|fewer|larger|smaller|higher|lower|other|"
    r"rather)\s+than|up\s+to|under|over|above|below|beyond|all|any|every|each"
    r"|(?:multiple|power|factor|divisor|root|square|cube|product|difference|quotient|sum|half|third"
    r"|quarter|function|log|opposite|reciprocal|inverse|negative)s?\s+of|twice|double|triple"
    r"|(?:divisible|divided|multiplied|increased|decreased|reduced|raised)\s+(?:by|to)"
    r"|mod(?:ulo)?)\b|\b(?:step|equation|case|part|option|choice|problem|example|theorem|base)\s*$"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_LINK = r"\s*(?:,|;|&|\b(?:and|or)\b)(?:\s*(?:,|;|&|\b(?:and|or)\b))*\s*"
_LIST = re.compile(rf"{_V}(?:{_LINK}{_V})*", re.IGNORECASE)
_MEASURES = re.compile(rf"{_V}\s*(?P<unit>[A-Za-z]+)(?:{_LINK}{_V}\s*(?P=unit))+\b", re.IGNORECASE)
_RESTATED = re.compile(
    rf",?\s*\b(?:or|that\s+is|i\.e\.)\s*,?\s*(?:equivalently|approximately|about|roughly)\s+{_V}",
    re.IGNORECASE,
)
_SIGN_WORD = re.compile(r"(?:\bnegative|^\s*minus|(?<=\bis)\s+minus)\s+(?=[\d$\\.])", re.IGNORECASE)
_BEGINS = re.compile(rf"\s*(?:{_FILLER}\s*)*{_LIST.pattern}", re.IGNORECASE)
_ASIDE = re.compile(r"^\s*\([^()]*\)")
_CHANGED = re.compile(
    r"\s*(?:,?\s*(?:\.{3}|…)|(?:choose|mod(?:ulo)?|squared|cubed|factorial|pi|[knxyz]"
    r"|halves|thirds|quarters|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|twelfths"
    r"|hundredths|thousandths|below|or\s+(?:more|less|fewer|higher|lower|greater)|at\s+(?:most|least)"
    r"|(?:raised\s+)?to\s+the\s+(?:\w+\s+)?power|raised\s+to"
    r"|(?:(?:is|are|was|were)\s+)?(?:(?:more|less|greater|fewer|larger|smaller|higher|lower)\s+than"
    r"|not|never|wrong|incorrect|impossible)"
    r"|and\s+(?:an?|one|two|three)\s+(?:half|third|quarter|fourth|fifth|eighth|tenth)s?)\b)",
    re.IGNORECASE,
)
_COORDINATED = re.compile(r"\b(?:and|or|but|plus|minus)\b|[,;]\s*$", re.IGNORECASE)
_RELATED = re.compile(
    r"\s*(?:(?!(?:at|for|when|with|on)\b)\S+|(?:out\s+)?of\s+(?:every|each|the)|out\s+of"
    r"|divided\s+by|multiplied\s+by|in\s+(?:every|each)|out\s+of\s+(?:every|each|the))?\s*",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"\b(?:so|thus|therefore|hence)\b(?!\s+that\b)", re.I)
_FOLLOWS = re.compile(r"\b(?:so|thus|therefore|hence|then|giving|finally|in\s+all)\b", re.I)


def mentions_value(sentence: str) -> bool:
    """Whether the sentence holds any value, stated or not."""
    return any(term.is_value for term in terms(sentence))


def stated_value(sentence: str, last: bool = False) -> str | None:
    """The value, or the list of values, that a sentence states.

    A sentence without "is" states a value where it begins with it or holds no other; with `last`,
    its last value counts instead.
    """
    marked, values = _marked(sentence)
    if not values:
        return None
    marked = _OPENING.sub("", marked)
    if last:
        marked = _conclusion(marked)
    statements = list(_STATES.finditer(marked))
    marked = _main_clause(marked, statements, last)
    statements = [s for s in statements if s.end() < len(marked)]
    if statements:
        opening = None if last else _BEGINS.match(marked)
        if opening and _goes_elsewhere(marked[opening.end() : statements[-1].start()]):
            return _one(marked, values)
        tail = marked[statements[-1].start() :]
        if not last and _contradicts(marked, statements, values):
            return None
        return _one(_behind_verb(tail), values)
    begins = re.match(rf"\s*{_V}", marked) is not None
    for copula in [] if begins else reversed(list(_COPULA.finditer(marked))):
        if re.search(_V, marked[copula.end() :]):
            return _one(marked[copula.end() :], values)
    lists = list(_LIST.finditer(marked))
    if last and lists:
        before = marked[lists[-2].end() if len(lists) > 1 else 0 : lists[-1].start()]
        if _one(before + marked[lists[-1].start() :], values) is None:
            return None
        return _one(marked[lists[-1].end() - 1 :], values)
    if len(lists) > 1 and not begins:
        return None
    return _one(marked, values)


def _goes_elsewhere(between: str) -> bool:
    """Whether words after a value lead to a further statement: `12 apples; Tom's share is 4`.

    Behind `2 + 3 is 5` and `5 and 7, so the sum is 12` the later value is what is stated.
    """
    return bool(re.search(r"[A-Za-z(]", between)) and not _FOLLOWS.search(between)


def _marked(sentence: str) -> tuple[str, list[str]]:
    """The sentence with a private character for each value, and the values."""
    parts: list[str] = []
    values: list[str] = []
    for term in terms(_SIGN_WORD.sub(" -", sentence)):
        if term.is_value and len(values) < _MAX_VALUES:
            parts.append(chr(_FIRST_MARK + len(values)))
            values.append(term.text)
        else:
            parts.append(term.text)
    return "".join(parts), values


def _main_clause(marked: str, statements: list[re.Match[str]], last: bool) -> str:
    """The sentence up to a clause such as "because …" that comes after a stated value.

    "10, which is 1,000 m²" goes on to a value that counts where the last one does.
    """
    begins = re.match(rf"\s*(?:{_FILLER}\s*)*{_V}", marked, re.IGNORECASE)
    first = begins.end() if begins else statements[0].end() + 1 if statements else len(marked)
    besides = next(
        (b for b in _BESIDES.finditer(marked, first) if not (last and _WHICH.search(b[0]))), None
    )
    return marked[: besides.start()] if besides else marked


def _conclusion(marked: str) -> str:
    """What follows the last "so", where it names one value: `5 boys and 7 girls, so 12`."""
    tail = _CONCLUDES.split(marked)[-1]
    return tail if len(_LIST.findall(tail)) == 1 else marked


def _behind_verb(tail: str) -> str:
    verb = _COPULA.match(tail)
    return tail[verb.end() :] if verb else tail


def _contradicts(marked: str, statements: list[re.Match[str]], values: list[str]) -> bool:
    """True where an earlier part of the sentence states another value and none follows from it."""
    last = statements[-1]
    final = values[ord(marked[last.end()]) - _FIRST_MARK]
    opening = _LIST.match(marked)
    if opening and len(opening[0]) == 1:  # `$12 and the change is $8`, but not `2 + 3 is 5`
        between = marked[opening.end() : last.start()]
        joined = _COORDINATED.search(between) and not _FOLLOWS.search(between)
        if joined and not _same(values[ord(opening[0]) - _FIRST_MARK], final):
            return True
    for earlier in statements[:-1]:
        other = values[ord(marked[earlier.end()]) - _FIRST_MARK]
        between = marked[earlier.end() + 1 : last.start()]
        if not (_FOLLOWS.search(between) or _same(other, final)):
            return True
    return False


def _same(one: str, other: str) -> bool:
    return one == other or bool(keys(one) & keys(other))


def _one(tail: str, values: list[str]) -> str | None:
    """The first value or list of values of a clause, unless it is hedged or goes on."""
    tail = _RESTATED.sub("", tail)
    found = _LIST.search(tail)
    if found is None or _HEDGE.search(tail[: found.start()]):
        return None
    found = _MEASURES.match(tail, found.start()) or found
    after = _ASIDE.sub(" ", tail[found.end() :])
    if _CHANGED.match(after):
        return None
    further = re.search(_V, after)
    if further:
        gap = after[: further.start()]
        if _COORDINATED.search(gap) or _RELATED.fullmatch(gap):
            return None  # `5 hours 30 minutes`, `5 to 6`, `5 out of 6`, `5 apples and 6 pears`
    listed = [values[ord(c) - _FIRST_MARK] for c in re.findall(_V, found[0])]
    if all(_same(listed[0], other) for other in listed[1:]):
        return listed[0]  # `3/4, or 75%`
    return ", ".join(listed)
