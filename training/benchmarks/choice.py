r"""The letter a response chooses, by a strict grammar; without a stated choice it abstains.

A choice counts only where the text says it is one: a `Final Answer:` line, a boxed letter, a
sentence such as "the answer is (C)", or a response that opens with nothing but an option. A letter
that merely occurs in the text is never read: `I cannot tell` is no vote for I, and abstaining is
wrong. A `Final Answer:` line outranks the rest, one within a line outranks other statements, and
two of them that differ are no answer; nor is a box or such a line with several letters. Of other
statements the first stands, as in MMLU-Pro's own scorer, also where it goes on "or (D)".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from training.benchmarks.formats import LETTERS
from training.benchmarks.response_text import before_next_question, own_words
from training.benchmarks.schema import Grade, Question

_MARKS = r"[\s*_`$\"'“‘]*"
_LINE = r"^[ \t>#*_`]*"
_WRAP = r"(?:\\(?:text|textbf|mathrm|mathbf|textrm|rm|bf|mbox)\s*\{\s*)?"
_BRACKET = _WRAP + r"(?:\\?[(\[{]\s*)?" + _WRAP
_BOX = r"\\(?:boxed|fbox)\s*"
_OPEN = _MARKS + r"(?:\\[(\[]\s*)?(?:" + _BOX + r"\{\s*)?" + _BRACKET
_OPTION = r"(?:(?:option|choice|answer|letter|alternative)\s+)?"
_LETTER = r"(?P<letter>[A-Z])"
_CLOSE = r"[ \t)\]}*_`$\"'.\\]*"

# What may follow a letter that is a choice: `A.` yes; `Apple`, `A × B`, `C.S.`, `C_2`, `I'm` no.
_SIGN = r"\s*(?:[)\]},:;\"”!]|\.(?!\w)|\\(?:[)\],;: \\]|q?quad\b|text\b))"
_MARK = r"['’*_`$]+(?!\w)|\s+[*_`]+\s*$|\s*$|\s*\n"
_DENIED = r"(?:not|wrong|incorrect|false)\b"
_WORD = r"\s+(?:because|since|as|which|and\s+not|is(?!\s+" + _DENIED + r"))\b"
# An article or a quantity may stand before other words, but not before these.
_FURTHER = (
    r"(?<![AI])\s+(?:\$|(?:but|by|for|from|in|on|with|without|if|so|then|here|only|when|where|while"
    r"|whereas|though|although|given|due|based|according|rather|instead)\b)"
)
_ASIDE = r"\s+(?:\(|[-–—](?!\s*\w\s*(?:=|$)))"
_AFTER = f"(?={_SIGN}|{_MARK}|{_WORD}|{_FURTHER}|{_ASIDE})"
_NAMED = r"(?:(?:option|choice|answer|letter|alternative)\s+" + _OPEN + ")?"
_STATED = _OPEN + _NAMED + _LETTER + _AFTER
_FLAGS = re.IGNORECASE | re.MULTILINE

# The letter I is the pronoun where a phrase could go on after it.
_NOT_PRONOUN = re.compile(
    r"\s*[)\]}*_`$\"”:;!\\]|\s*(?:\n|\Z)|\.(?!\w)\s*(?:\n|\Z|[A-Z(\\])|,?\s+(?:because|since)\b"
)
# Two options in one breath, `(A) or (B)`, are no final answer.
_GAP = r"(?:[\s)\]}*_`$~]|\\[,;: ]|\\(?:text|textbf|mathrm|boxed)\s*\{)*"
_HEDGE = re.compile(
    _GAP + r"(?:(?:(?:or|and)\b|[,;/&])"
    r"(?:[\s(\[}*_`$~]|\\[,;: ]|\\(?:text|textbf|mathrm|boxed)\s*\{"
    r"|(?:or|and|also|maybe|possibly|perhaps|option|choice)\b)*[A-Z](?!\w|['’])"
    r"|:\s*[A-Z]\s*\}"
    r"|(?<=[)\]])\s*[(\[][A-Z][)\]]"
    r"|(?:\.\s*[A-Z]\b)+[.\s]*(?:\}|\n|\Z))"
)
# A line that opens another option: the text goes through the options.
_OTHER_OPTION = re.compile(
    r"^[ \t*_`#>-]*(?:(?:option|choice)[ \t]+)?(?:\([A-Z]\)|[A-Z](?:[.:)]|[ \t*_`]*$))", _FLAGS
)

_FINAL = r"final[ \t]+answer(?:[\s*_`]*[:：]|[ \t*_`]*\n)"
_FINAL_LINE = re.compile(_LINE + _FINAL + _STATED, _FLAGS)
_FINAL_WITHIN = re.compile(r"\bfinal[ \t]+answer[ \t*_`]*[:：]" + _STATED, _FLAGS)
_BOXED = re.compile(
    _BOX + r"(?:\{" + _MARKS + _WRAP + _OPTION + _BRACKET + r"|(?<=[dx])\s+)" + _LETTER
    + rf"(?={_SIGN}|\s*[*_`]+\}}|\s*\$|\s*$)",
    _FLAGS,
)  # fmt: skip
_HEADING = re.compile(_LINE + r"(?:(?:correct|best)[ \t]+)?answer[ \t*_`]*\n" + _STATED, _FLAGS)
_ANSWER_LINE = re.compile(
    _LINE + r"answer[ \t]*(?:[-–—][ \t]*)?" + _BRACKET + _LETTER + _CLOSE + "$", _FLAGS
)
_SENTENCE = re.compile(
    r"\b(?:answer(?:\s+(?:choice|option))?|(?:correct|right|best)\s+(?:choice|option))\b"
    r"(?:\s+(?:to|for)\s+[^.\n:]{1,80}?)?"
    r"(?:\s+(?:here|therefore|thus|then|would|should|must|will))*"
    r"\s*(?:\bis\b|\bare\b|\bbe\b|=|[:：])(?:\s*[:：]"
    r"|\s+(?:therefore|thus|clearly|indeed|likely|probably|most\s+likely|definitely))*" + _STATED,
    _FLAGS,
)
_CORRECT = re.compile(
    r"\b(?:option|choice|answer)\s*(?:[*_`(\[]+\s*)?" + _LETTER + r"\s*(?:[)\]*_`]+\s*)?"
    r"(?:is|seems|would\s+be)\s+(?:therefore\s+)?(?:the\s+)?"
    r"(?:correct|right|best|true|most\s+likely)",
    _FLAGS,
)
_IS_THE_ANSWER = re.compile(
    r"(?:\A|[.!?:;\n]|\b(?:therefore|thus|hence|so)\b,?)[ \t*_`\"(\[]*" + _LETTER
    + r"[)\]*_`\"]*\s+is\s+(?:therefore\s+|thus\s+|clearly\s+)?the\s+(?:most\s+)?"
    r"(?:correct|right|best|appropriate|accurate)\s+(?:answer|option|choice|one)\b",
    _FLAGS,
)  # fmt: skip
_CHOSEN = re.compile(
    r"\b(?:choose|pick|select|chose|go\s+with|going\s+with|it(?:['’]s|\s+is|\s+must\s+be))\s+"
    + _OPTION + r"\(" + _LETTER + r"(?=\))",
    _FLAGS,
)  # fmt: skip
_I_CHOOSE = re.compile(
    r"\bI(?:['’]ll|['’]d|\s+(?:will|would|must|therefore))?\s+(?:choose|pick|select|go\s+with)"
    r"(?:\s+(?:option|choice|answer))?(?=\s)" + _MARKS + _LETTER
    + r"(?=[*_`\"']*(?:\.(?!\w)|\s*$))",
    _FLAGS,
)  # fmt: skip
_STATEMENTS = (
    ("answer sentence", _SENTENCE),
    ("boxed", _BOXED),
    ("answer heading", _HEADING),
    ("answer line", _ANSWER_LINE),
    ("option called correct", _CORRECT),
    ("option chosen", _CHOSEN),
)
# Looser words, which count only where none of the above stands.
_LOOSE_STATEMENTS = (("option called correct", _IS_THE_ANSWER), ("option chosen", _I_CHOOSE))
_ALONE = re.compile(r"\A" + _OPEN + r"(?i:" + _NAMED + ")" + _LETTER + _CLOSE + r"\s*\Z")
_LEADING = re.compile(
    r"\A[\s*_`]*(?i:" + _OPTION + r")\(?" + _LETTER + r"(?:\)|[.:](?=\s))[ \t]*\S"
)
_CALLED_WRONG = re.compile(r"\bis\s+(?:not\s+(?:correct|right|true)|wrong|incorrect)\b", _FLAGS)


def read_choice(response: str, count: int) -> tuple[str | None, str]:
    """The chosen letter and how it was stated, or None and why not.

    `count` is the number of options. A stated letter beyond the options is returned too: it is what
    the model chose, and it cannot be right.
    """
    text = own_words(response)
    for how, pattern in (
        ("final answer line", _FINAL_LINE),
        ("final answer within a line", _FINAL_WITHIN),
    ):
        finals = _letters(pattern, text)
        if finals:
            return _one_of(finals, text, how)
    for statements in (_STATEMENTS, _LOOSE_STATEMENTS):
        found = [
            (place, letter, how)
            for how, pattern in statements
            for place, letter in _letters(pattern, text)
        ]
        if found:
            _, letter, how = min(found)
            return (None, f"{how}: several letters") if letter == "?" else (letter, how)
    return _opening(text, count)


def grade_choice(question: Question, response: str) -> Grade:
    """Whether the response chooses the key, or a choice with the very same text."""
    count = len(question.choices) or len(LETTERS)
    letter, how = read_choice(response, count)
    if letter is None:
        return Grade.unparsed(how)
    if not _place(letter, count):
        return Grade(letter, False, f"{how}: there is no option {letter}")
    right = letter == question.answer.strip().strip("()") or _same_text(
        question.choices, letter, question.answer
    )
    return Grade(letter, right, how)


def _letters(pattern: re.Pattern[str], text: str) -> list[tuple[int, str]]:
    """Places and letters of a pattern; `?` stands for several options in one final answer.

    The keywords ignore case, the letter does not, unless it stands in parentheses.
    """
    found = []
    for match in pattern.finditer(text):
        letter, at = match["letter"], match.start("letter")
        if letter.islower() and text[at - 1 : at + 2] != f"({letter})":
            continue
        if letter == "I" and not _NOT_PRONOUN.match(text, at + 1):
            continue
        # A formula closes its own `$`; after a bare letter the sign is a currency.
        if text[at + 1 : at + 2] == "$" and "$" not in text[match.start() : at]:
            continue
        found.append((match.start(), "?" if _is_hedged(match) else letter.upper()))
    return found


def _is_hedged(match: re.Match[str]) -> bool:
    """Whether a final answer goes on to another option; of a sentence the first one stands."""
    text, after = match.string, match.end("letter")
    if match.re is _HEADING:
        return _goes_through_options(text[after:])
    final = match.re in (_FINAL_LINE, _FINAL_WITHIN, _BOXED)
    boxed = re.search(_BOX, match[0], re.IGNORECASE)
    return bool((final or boxed) and _HEDGE.match(text[after : after + 60]))


def _goes_through_options(text: str) -> bool:
    """Whether a line after the first opens an option."""
    return bool(_OTHER_OPTION.search(text.partition("\n")[2]))


def _one_of(finals: Sequence[tuple[int, str]], text: str, how: str) -> tuple[str | None, str]:
    """The one letter of all final answers before the next question."""
    cut = before_next_question(text, finals[0][0])
    stated = list(dict.fromkeys(letter for at, letter in finals if at < len(cut)))
    if len(stated) > 1 or "?" in stated:
        return None, f"more than one final answer: {', '.join(stated)}"
    return stated[0], how


def _opening(text: str, count: int) -> tuple[str | None, str]:
    """The option that a response opens with, alone in its paragraph.

    Text that goes on through the options chooses none, and no more does an option called wrong.
    """
    if not text.strip():
        return None, "the response is empty"
    paragraph, _, rest = re.sub(r"\n[ \t]+\n", "\n\n", text.strip()).partition("\n\n")
    listed = _goes_through_options(text.strip())
    alone = _ALONE.match(paragraph)
    if alone and not listed:
        return alone["letter"], "nothing but the letter"
    leading = _LEADING.match(paragraph)
    if (
        leading
        and "\n" not in paragraph
        and not listed
        and not (leading["letter"] == "I" and rest)
        and not _CALLED_WRONG.search(paragraph)
        and _place(leading["letter"], count)
    ):
        return leading["letter"], "option repeated"
    return None, "no choice is stated"


def _place(letter: str, count: int) -> bool:
    return LETTERS.index(letter) < count


def _same_text(choices: Sequence[str], letter: str, key: str) -> bool:
    if not choices or key not in LETTERS:
        return False
    return choices[LETTERS.index(letter)] == choices[LETTERS.index(key)]
