"""Plain form of an answer's text: typography, LaTeX layout and markup removed, values untouched."""

from __future__ import annotations

import re
import unicodedata

from training.algorithms.answer_key.integers import NotExact

MAX_CHARS = 24_000
"""Longest answer that is read: enough for a fraction of two numbers of 10,000 digits."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾", "0123456789+-()")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")
_SYMBOLS = str.maketrans(
    {
        **dict.fromkeys("−–—‐‑‒﹣－", "-"),
        **dict.fromkeys("×✕✖", r"\times "),
        **dict.fromkeys("·⋅∙•", r"\cdot "),
        **dict.fromkeys("⁄∕", "/"),
        "÷": r"\div ",
        "π": r"\pi ",
        "≈": r"\approx ",
        "≃": r"\approx ",
        "º": "°",
        "\u2009": r"\,",
        "\u202f": r"\,",
        "\u00a0": " ",
        "’": "'",
    }
)
_MATH_DELIMITERS = re.compile(r"\\[()\[\]]|\\\$|\$")
_GROUP_MARK = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\[,!;: ] ?|~)(?=[0-9]{3}(?![0-9]))")
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|quad|qquad|enspace|thinspace)"
    r"(?![A-Za-z])|\\[,;:! ]|~"
)
_BARS = re.compile(r"\\(?:[lr]?vert|mid)(?![A-Za-z])")
_TEXT_MACRO = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|normal)?|math(?:rm|bf|it|sf|tt)|[mh]box|operatorname|emph|bm"
    r"|boldsymbol)\*?\s*\{([^{}]*)\}"
)
_LETTER_X_TIMES = re.compile(r"(?<=[0-9])\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_SPECIAL_TOKEN = re.compile(r"\s*(?:<\|[a-z_]{1,30}\|>|</?s>|<eos>|<pad>|<end_of_turn>)\s*\Z")
_SPACES = re.compile(r"[ \t]{3,}")
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BEFORE_BOX = re.compile(r"(?:\A|[=:]|\\approx|\b(?:is|equals|answer|result|value))\s*\Z", re.I)
_AFTER_BOX = re.compile(r"\s*(?:\Z|[%.°A-Za-z]|\\(?:%|text|math|[mh]box)|\^\s*\{?\s*\\circ)")
_EMPHASIS = re.compile(r"(?<!\S)\*\*(?=\S)|(?<=\S)\*\*(?=[.,;:!?]?(?:\s|\Z))|`")
_DASH_BETWEEN = re.compile(r"[0-9]\s*[–—]\s*[0-9]")
_EDGES = ' \t\r\n*_`"“”'


def plain(answer: str) -> str:
    """The answer's text in the form that the grammar reads.

    Raises NotExact for text that is empty, too long, holds control characters, or has a box that
    does not close or is not alone.
    """
    _require_length(answer)
    text = strip_special_tokens(answer)
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").strip()
    if _DASH_BETWEEN.search(text):
        raise NotExact("a range, not one number")
    text = _EMPHASIS.sub(" ", text)
    text = _one_alphabet(text.strip(_EDGES))
    text = _SPACES.sub("  ", text)
    if any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\r\n" for c in text):
        raise NotExact("control characters in the answer")
    text = _MATH_DELIMITERS.sub(" ", text).strip(_EDGES)
    text = _unbox(text).replace(r"\%", "%").replace(r"\_", "_").replace(r"\{", "(")
    text = _GROUP_MARK.sub("_", text.replace(r"\}", ")"))
    text = _BARS.sub("|", _LAYOUT.sub(" ", text))
    for _ in range(3):
        text = _TEXT_MACRO.sub(r" \1 ", text)
    text = _LETTER_X_TIMES.sub(r"\\times ", text).rstrip(" \t\r\n\\").strip(_EDGES)
    if text.endswith((".", ",", ";", "。")) and not text.endswith(".."):
        text = text[:-1].strip(_EDGES)
    if not text:
        raise NotExact("an empty answer")
    if "\n" in text or "\r" in text:
        raise NotExact("an answer of several lines")
    return text


def strip_special_tokens(text: str) -> str:
    """The text without end-of-text markers that a tokenizer may have left at its end."""
    while match := _SPECIAL_TOKEN.search(text[-60:]):
        text = text[: len(text) - len(match[0])]
    return text


def _require_length(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise NotExact(f"an answer longer than {MAX_CHARS:,} characters")


def _one_alphabet(text: str) -> str:
    """ASCII digits and operators for every way that Unicode writes them."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    text = _VULGAR.sub(_fraction_sign, text).translate(_SYMBOLS)
    text = "".join(map(_plain_character, text))
    _require_length(text)
    return text.translate(_SYMBOLS)


def _plain_character(c: str) -> str:
    if c.isascii() or unicodedata.category(c) == "Lo":  # some of these letters are whole phrases
        return c
    return str(unicodedata.decimal(c, unicodedata.normalize("NFKC", c)))


def _fraction_sign(match: re.Match[str]) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _unbox(text: str) -> str:
    """Content of the one box, with a name before it or a unit after it kept."""
    for _ in range(3):
        match = _BOX.search(text)
        if match is None:
            return text
        before, start = text[: match.start()], match.end()
        if text[start : start + 1] == "{":
            end = _closing_brace(text, start)
            content, after = text[start + 1 : end], text[end + 1 :]
        else:
            content, after = text[start:], ""
        if not _BEFORE_BOX.search(before[-20:]) or not _AFTER_BOX.match(after):
            raise NotExact("something before or after the box")
        before = re.sub(r":\s*\Z", " is ", before)
        text = f"{before} {content.strip()}{after}".strip(_EDGES)
    raise NotExact("boxes within boxes")


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    raise NotExact("a box that does not close")
