"""Tokens of the closed forms that an answer may be, each with the space before it."""

from __future__ import annotations

import re

_END = r"(?![A-Za-z])"
SIGN = re.compile(r"\s*([+-])")
TIMES = re.compile(rf"\s*(?:\*(?!\*)|\\(?:times|cdot|ast){_END})")
DIVIDE = re.compile(rf"\s*(?:/(?!/)|\\div{_END})")
MOD = re.compile(rf"\s*\\?b?mod{_END}")
PERCENT = re.compile(rf"\s*(?:%|percent(?:age|s)?{_END}|per cent{_END}|pct{_END})")
DEGREES = re.compile(rf"\s*(?:°|\^\s*\{{?\s*\\circ\s*\}}?|\\degree{_END})")
POWER = re.compile(r"\s*(?:\^|\*\*)")
FACTORIAL = re.compile(r"\s*!")
OPEN = re.compile(rf"\s*(\(|\[|\{{|\||\\lfloor{_END}|\\lceil{_END})")
CLOSE = {
    opening: re.compile(rf"\s*{closing}")
    for opening, closing in {
        "(": r"\)",
        "[": r"\]",
        "{": r"\}",
        "|": r"\|",
        r"\lfloor": rf"\\rfloor{_END}",
        r"\lceil": rf"\\rceil{_END}",
    }.items()
}
CALL_OF_GROUP = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}
COMMA = re.compile(r"\s*,")
PARENTHESIS = re.compile(r"\s*\(")
BRACE = re.compile(r"\s*\{")
DIGIT = re.compile(r"\s*([0-9])")
ROOT_DEGREE = re.compile(r"\s*\[\s*([0-9]{1,4})\s*\]")
LOG_BASE = re.compile(r"\s*_\s*(?:\{\s*([0-9]{1,30})\s*\}|([0-9]))")
NAME = re.compile(rf"\s*(?:(?:math|sympy|sp|np)\.)?(\\?)([A-Za-z]+){_END}")
ROOT_SIGN = re.compile(r"\s*([√∛∜])")
CHOOSE = re.compile(rf"\s*\\(choose|over){_END}")
INFIX_CHOOSE = re.compile(r"C(?=[0-9])")
IMPLICIT = re.compile(r"\s*[(\[{√∛∜]")
