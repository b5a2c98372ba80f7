"""Judge two single answers by our canonical key: exact, symmetric, and transitive.

Beside equal keys two further rules apply at evaluation, both documented in docs/evaluation.md: a
percent sign may be a factor of 1/100 or the unit the question asked for, and a decimal of at least
six significant digits may stand for a value without a finite decimal form that rounds to it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from training.algorithms.answers import canonical_label

ROUNDING_DIGITS = 6
_MAX_UNENDING = 100  # characters of a decimal whose repeating digits are looked for
_PERCENT = re.compile(r"\\?%|\bper\s?cent(?:age(?: points?)?)?\b", re.IGNORECASE)
_PLAIN = re.compile(r"-?(?:[1-9]\d{0,2}(?:,\d{3}){1,6}|\d{1,20})(?:\.\d{1,20})?")
_BRACKETED_LIST = re.compile(
    r"(?:[^=]{0,40}=)?(?:[\s$]|\\[(\[])*(?:\\left\s*)?(?:\\\{|[(\[{])"
    r"[^()\[\]]*,(?!\\!)[^()\[\]]*[)\]}](?:[\s$]|\\[)\]])*"
)
_REPEATING = re.compile(r"(?P<start>[-+]?\d*\.\d*?)(?P<block>\d{1,12}?)(?P=block)+")
_UNIT_WITH_POWERS = re.compile(
    r"(?<=[\d}])(?:\s|~|\\[,;: ])*\\(?:mathrm|text\w*)\s*"
    r"\{[^{}\d]*[A-Za-z]\s*\^\s*\{[^{}]*\}(?:[^{}]|\{[^{}]*\})*\}(?=[\s$.]*$)"
)
_ELLIPSIS = re.compile(r"(?<=\d)\s*(?:\.{2,}|…|\\[lc]?dots)[\s$]*$")
_CHOOSE = re.compile(r"\\choose\s*\{(\d+)\}\s*\{(\d+)\}")
_DECIMAL = re.compile(r"[-+]?(?P<digits>\d*\.\d+)(?:[eE][-+]?\d+)?")
_SCIENTIFIC = re.compile(r"(?P<digits>\d*\.?\d+)\s*(?:\\times|\\cdot|\*|×)\s*10\s*\^?")
_TERM = re.compile(r"[+-]?[^+-]+(?:\^\(-[^)]*\))?(?:\*[^+-]+)*")
_TEXT_COMMAND = re.compile(r"\\(?:text\w*|math(?:rm|bf|it)|mbox|operatorname)\s*\{([^{}]*)\}")
_NOT_TEXT = re.compile(r"[^\w'→-]+")


@lru_cache(maxsize=4096)
def keys(answer: str) -> frozenset[str]:
    """The labels an answer may stand for: one, or two with a percent sign; empty if it has none."""
    plain = _PLAIN.fullmatch(answer)
    if plain:  # what the key would say of most answers, at a tenth of its cost
        number = Fraction(plain[0].replace(",", ""))
        return frozenset({str(number)})
    if _BRACKETED_LIST.fullmatch(answer.replace("{,}", "")):
        return frozenset()  # `(100,200)` is two numbers, whatever the grouping of thousands says
    answer = _unending(_UNIT_WITH_POWERS.sub("", answer))
    answer = _CHOOSE.sub(r"\\binom{\1}{\2}", answer.strip())
    if len(answer) == 1 and not answer.isascii():  # a numeral of another script, such as 三
        answer = f"{unicodedata.numeric(answer, math.nan):g}"
    found = {canonical_label(answer, percent=True)}
    if _PERCENT.search(answer):
        found.add(canonical_label(_PERCENT.sub("", answer)))
    return frozenset(label for label in found if label is not None)


def same_key(gold: str, answer: str) -> bool | None:
    """True or False by the keys of two single answers; None when one of them has none."""
    gold_keys, answer_keys = _keys_alike(gold, answer)
    if not gold_keys or not answer_keys:
        return None
    if gold_keys & answer_keys:
        return True
    return any(
        _rounds_to(exact, written, text)
        for exacts, labels, text in (
            (gold_keys, answer_keys, answer),
            (answer_keys, gold_keys, gold),
        )
        for exact in exacts
        for written in labels
    )


def _keys_alike(gold: str, answer: str) -> tuple[frozenset[str], frozenset[str]]:
    """The keys of both; where both are per cent, of the numbers before the signs alone."""
    if _PERCENT.search(gold) and _PERCENT.search(answer):
        gold, answer = _PERCENT.sub("", gold), _PERCENT.sub("", answer)
    return keys(gold), keys(answer)


def _unending(answer: str) -> str:
    """A decimal with an ellipsis: the fraction if its last digits repeat, the decimal if long."""
    mark = _ELLIPSIS.search(answer)
    if mark is None:
        return answer
    decimal = answer[: mark.start()].strip(" $")
    if len(decimal) > _MAX_UNENDING:
        return answer
    repeating = _REPEATING.fullmatch(decimal)
    if repeating is not None:
        start, block = repeating["start"], repeating["block"]
        unit = Fraction(1, 10 ** len(start.partition(".")[2]))
        tail = unit * Fraction(int(block), 10 ** len(block) - 1)
        head = Fraction(start + "0" if start.endswith(".") else start) if start.strip("+-.") else 0
        return str(head - tail if start.startswith("-") else head + tail)
    long_enough = len(decimal.lstrip("-+0.").replace(".", "")) >= ROUNDING_DIGITS
    return decimal if long_enough and _DECIMAL.fullmatch(decimal) else answer


def within(gold: str, answer: str, relative: Fraction, absolute: Fraction) -> bool | None:
    """Whether two single numbers differ by at most a tolerance; None when one is no number."""
    gold_keys, answer_keys = _keys_alike(gold, answer)
    gold_values = [v for v in map(value, gold_keys) if v is not None]
    answer_values = [v for v in map(value, answer_keys) if v is not None]
    if not gold_values or not answer_values:
        return None
    return any(
        abs(g - a) <= max(relative * abs(g), absolute) for g in gold_values for a in answer_values
    )


def rational(label: str) -> Fraction | None:
    """The exact value of a rational label."""
    try:
        return Fraction(label)
    except (ValueError, ZeroDivisionError):
        return None


def value(label: str) -> Fraction | None:
    """The value of a label, exact where rational, else to double precision; None if too large."""
    exact = rational(label)
    if exact is not None:
        return exact
    try:
        approximate = math.fsum(_term_value(term) for term in _TERM.findall(label))
    except (ValueError, OverflowError, KeyError):
        return None
    return Fraction(approximate) if math.isfinite(approximate) else None


def plain_text(answer: str) -> str:
    r"""A worded answer for comparison: `\text{(C)}`, `Evelyn.` and `evelyn` lose what differs."""
    text = answer.replace("$", " ").replace("\\ ", " ")
    for _ in range(3):
        text = _TEXT_COMMAND.sub(r" \1 ", text)
    return " ".join(_NOT_TEXT.sub(" ", text).lower().split())


def _rounds_to(exact: str, written: str, text: str) -> bool:
    """Whether `written`, a long decimal spelled `text`, is `exact` rounded to its last digit."""
    written_value = rational(written)
    if written_value is None or written_value == 0:
        return False
    exact_value = rational(exact)
    if exact_value is not None and _finite_decimal(exact_value):
        return False
    spelled = _PERCENT.sub("", text.replace("{,}", "").replace(",", ""))
    match = _SCIENTIFIC.search(spelled) or _DECIMAL.search(spelled)
    if match is None:
        return False
    digits = match["digits"].replace(".", "").lstrip("0")
    if len(digits) < ROUNDING_DIGITS:
        return False
    target = value(exact)
    if target is None:
        return False
    # One unit in the last place: the last digit may be rounded or cut off.
    magnitude = math.floor(math.log10(abs(float(written_value)))) + 1
    place = Fraction(10) ** (magnitude - min(len(digits), 15))
    return abs(target - written_value) <= place


def _finite_decimal(number: Fraction) -> bool:
    denominator = number.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _term_value(term: str) -> float:
    sign = -1.0 if term.startswith("-") else 1.0
    product = sign
    for factor in term.lstrip("+-").split("*"):
        base, _, exponent = factor.partition("^")
        power = float(Fraction(exponent.strip("()"))) if exponent else 1.0
        product *= _factor_value(base) ** power
    return product


def _factor_value(base: str) -> float:
    if base in ("pi", "e"):
        return math.pi if base == "pi" else math.e
    if base.startswith("sqrt("):
        return math.sqrt(int(base[5:-1]))
    if base.startswith("ln("):
        return math.log(int(base[3:-1]))
    return float(Fraction(base))
