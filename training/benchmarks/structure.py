r"""The shape of an answer: a single value, a list, a tuple, a set, an interval, a union.

Only the shape is read here; what the parts are is left to the key and to math-verify. Lists and
sets have no order, tuples and intervals have one. `\pm` becomes two values, a chained inequality in
one name the interval it describes, and a name before a set or a tuple (`x \in`, `(a,b) =`) goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How the parts of an answer belong together."""

    SINGLE = "single"
    LIST = "list"
    SET = "set"
    TUPLE = "tuple"
    INTERVAL = "interval"
    UNION = "union"


@dataclass(frozen=True)
class Node:
    """`text` is the source; `parts` is empty for a single value. `brackets` opens and closes it."""

    shape: Shape
    text: str
    parts: tuple[Node, ...] = ()
    brackets: str = ""

    @property
    def ordered(self) -> bool:
        """True where the order of the parts matters."""
        return self.shape in (Shape.TUPLE, Shape.INTERVAL)


MAX_PARTS = 64
_MAX_CHARS = 4000
_SET_OPEN, _SET_CLOSE = "⦃", "⦄"
_OPEN, _CLOSE = "([{" + _SET_OPEN, ")]}" + _SET_CLOSE
_NAME = r"(?:\\?[A-Za-z]+(?:_\{?\w+\}?)?'?)"
_LAYOUT = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|limits)(?![A-Za-z])\.?|\\[!,;:]|\\ |~|\$"
    r"|\\[()\[\]]|\\q?quad(?![A-Za-z])"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,?\\[!, ;:]|,\\!)\s*(?=\d{3}(?!\d))")
_GROUPED = re.compile(r"[-+]?\$?\s?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MAYBE_LIST = re.compile(r"[-+]?\d{1,3}(?:,[1-9]\d{2})+")
_NAMED_VALUE = re.compile(rf"\s*(?P<name>{_NAME})\s*=\s*(?P<value>[^=]+)")
_WORD_AND = re.compile(
    r"\\(?:text|mbox|textrm|mathrm)\s*\{\s*(?:,?\s*(?:and|or|for)\b[^{}]*)\}|\b(?:and|or)\b", re.I
)
_BELONGS = re.compile(rf"^\s*{_NAME}\s*\\in(?![A-Za-z])\s*")
_NAMED_TUPLE = re.compile(rf"^\s*\(\s*{_NAME}(?:\s*,\s*{_NAME})+\s*\)\s*=\s*(?=[(\[])")
_CHAIN = re.compile(
    rf"^(?P<low>[^<>=]+?)(?P<l><=?)\s*{_NAME}(?:\([A-Za-z]\))?\s*(?P<h><=?)(?P<high>[^<>=]+)$"
)
_HALF_LINE = re.compile(rf"^{_NAME}\s*(?P<op>[<>]=?)(?P<bound>[^<>=]+)$")
_ORDER = {
    r"\leqslant": "<=", r"\geqslant": ">=", r"\leq": "<=", r"\geq": ">=", r"\le": "<=",
    r"\ge": ">=", r"\lt": "<", r"\gt": ">", "≤": "<=", "≥": ">=",
}  # fmt: skip
_ORDER_PATTERN = re.compile("|".join(rf"{re.escape(k)}(?![A-Za-z])" for k in _ORDER))
_FULL_STOP = re.compile(r"(?<!\.)\.$")
_MATRIX = re.compile(r"\\begin\s*\{")


def read_structure(answer: str) -> Node:
    """The shape of `answer`. Anything not recognised is a single value; never raises."""
    if len(answer) > _MAX_CHARS or _MATRIX.search(answer):
        return Node(Shape.SINGLE, answer.strip())
    return _read(tidy(answer), 0)


def read_alike(gold: str, answer: str) -> tuple[Node, Node]:
    """The shapes of a key and an answer, where each helps to understand the other.

    `10,100` is a number on its own, and two where the other side is a list. `a = 1, b = 2` is a
    list on its own, and a tuple in the order written where the other side is one.
    """
    gold_node, answer_node = read_structure(gold), read_structure(answer)
    gold_alike = _like(gold_node, answer_node)
    return gold_alike, _like(answer_node, gold_node)


def _like(node: Node, other: Node) -> Node:
    if node.shape is Shape.SINGLE and other.shape in (Shape.LIST, Shape.SET):
        if _MAYBE_LIST.fullmatch(node.text):
            parts = tuple(Node(Shape.SINGLE, p) for p in node.text.split(","))
            return Node(Shape.LIST, node.text, parts)
    elif node.shape is Shape.LIST and other.shape is Shape.TUPLE:
        named = [_NAMED_VALUE.fullmatch(part.text) for part in node.parts]
        matches = [m for m in named if m]
        names = [m["name"].lstrip("\\").lower() for m in matches]
        # `y = 1, x = 2` is more likely the pair (2, 1): only names in their usual order count.
        if len(names) == len(node.parts) == len(set(names)) and names == sorted(names):
            values = tuple(_read(m["value"], 1) for m in matches)
            return Node(Shape.TUPLE, node.text, values, other.brackets)
    return node


def tidy(answer: str) -> str:
    """The answer without layout commands, with set braces and inequalities as single signs."""
    text = _THOUSANDS.sub(",", answer)
    text = text.replace(r"\{", _SET_OPEN).replace(r"\}", _SET_CLOSE)
    text = text.replace(r"\lbrace", _SET_OPEN).replace(r"\rbrace", _SET_CLOSE)
    text = _LAYOUT.sub(" ", text)
    text = _ORDER_PATTERN.sub(lambda m: _ORDER[m[0]], text)
    return _FULL_STOP.sub("", text.strip()).strip()


def _read(text: str, depth: int) -> Node:
    text = text.strip()
    if depth > 3:
        return Node(Shape.SINGLE, text)
    text = _NAMED_TUPLE.sub("", _BELONGS.sub("", text))
    pieces = _split(text)
    if len(pieces) > 1:
        return _collection(Shape.LIST, text, pieces, depth)
    union = _split_top(text, re.compile(r"\\cup(?![A-Za-z])|∪"))
    if len(union) > 1:
        return _collection(Shape.UNION, text, union, depth)
    interval = _inequality(text)
    if interval is not None:
        return interval
    inside = _inside(text)
    if inside is None:
        return _signed(text)
    opening, closing = text[0], text[-1]
    if opening == "{":  # a TeX group, or a set whose backslashes were lost
        items = _split(inside, bracketed=True)
        return (
            _collection(Shape.SET, text, items, depth)
            if len(items) > 1
            else _read(inside, depth + 1)
        )
    items = _split(inside, bracketed=True)
    if opening == _SET_OPEN:
        return _collection(Shape.SET, text, items, depth)
    if len(items) < 2:
        same = (opening, closing) in (("(", ")"), ("[", "]"))
        return _read(inside, depth + 1) if same else Node(Shape.SINGLE, text)
    mixed = opening + closing
    shape = Shape.INTERVAL if mixed in ("(]", "[)") or _has_infinity(items) else Shape.TUPLE
    return Node(shape, text, _parts(items, depth), mixed)


def _collection(shape: Shape, text: str, items: list[str], depth: int) -> Node:
    """A list, set or union; `\\pm` items become two, which makes the node's parts flat."""
    parts: list[Node] = []
    for node in _parts(items, depth):
        if node.shape is Shape.LIST and not node.brackets:  # `x = 1, y = 2; …`: a list of pairs
            node = Node(Shape.TUPLE, node.text, node.parts, "()")
        parts.extend(node.parts if node.shape is Shape.LIST and node.brackets == "±" else [node])
    if len(parts) == 1 and shape is Shape.LIST:
        return parts[0]
    return Node(shape, text, tuple(parts[:MAX_PARTS]))


def _parts(items: list[str], depth: int) -> tuple[Node, ...]:
    return tuple(_read(item, depth + 1) for item in items[:MAX_PARTS])


def _split(text: str, bracketed: bool = False) -> list[str]:
    """Items of a list: by semicolons, else by commas and the words and/or.

    Thousands stay whole, but not in brackets, where `100,200` are two items.
    """
    if ";" in text:
        by_semicolon = [p for p in _split_top(text, re.compile(";")) if p.strip()]
        if len(by_semicolon) > 1:
            return by_semicolon
    if not bracketed and _GROUPED.fullmatch(text):
        return [text]
    commas = re.compile(rf",|{_WORD_AND.pattern}", re.I)
    spaced = [p.strip() for p in _split_top(text, re.compile(rf",\s|{_WORD_AND.pattern}", re.I))]
    spaced = [p for p in spaced if p]
    if len(spaced) > 1 and all("," not in p or _GROUPED.fullmatch(p) for p in spaced):
        return spaced  # the commas without a blank group thousands: `1,000, 2,000`
    pieces = [p.strip() for p in _split_top(text, commas)]
    return [p for p in pieces if p] or [text]


def _split_top(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split where no bracket is open; a half-open interval's brackets pair with each other."""
    pieces, depth, start = [], 0, 0
    place = 0
    while place < len(text):
        char = text[place]
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif depth == 0 and (match := separator.match(text, place)):
            pieces.append(text[start:place])
            start = place = match.end()
            continue
        place += 1
    return [*pieces, text[start:]] if depth == 0 else [text]


def _inside(text: str) -> str | None:
    """What one pair of brackets around the whole text holds, or None."""
    if len(text) < 2 or text[0] not in _OPEN or text[-1] not in _CLOSE:
        return None
    depth = 0
    for place, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth == 0 and place < len(text) - 1:
            return None
    return text[1:-1] if depth == 0 else None


def _signed(text: str) -> Node:
    if text.count(r"\pm") + text.count("±") == 1:
        plus = re.sub(r"\\pm(?![A-Za-z])|±", "+", text)
        minus = re.sub(r"\\pm(?![A-Za-z])|±", "-", text)
        both = tuple(Node(Shape.SINGLE, t.strip().removeprefix("+").strip()) for t in (plus, minus))
        return Node(Shape.LIST, text, both, "±")
    return Node(Shape.SINGLE, text)


def _inequality(text: str) -> Node | None:
    chain = _CHAIN.match(text)
    if chain:
        brackets = ("[" if chain["l"] == "<=" else "(") + ("]" if chain["h"] == "<=" else ")")
        ends = (chain["low"], chain["high"])
    else:
        half = _HALF_LINE.match(text)
        if half is None:
            return None
        closed = half["op"].endswith("=")
        if half["op"].startswith(">"):
            brackets, ends = ("[" if closed else "(") + ")", (half["bound"], r"\infty")
        else:
            brackets, ends = "(" + ("]" if closed else ")"), (r"-\infty", half["bound"])
    return Node(Shape.INTERVAL, text, tuple(Node(Shape.SINGLE, e.strip()) for e in ends), brackets)


def _has_infinity(items: list[str]) -> bool:
    return any("infty" in item or "∞" in item for item in items)
