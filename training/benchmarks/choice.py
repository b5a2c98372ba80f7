r"""The letter a response chooses, by a strict grammar; without a stated choice it abstains.

A choice counts only where the text says it is one: a `Final Answer:` line, a boxed letter, a
sentence such as "the answer is (C)", or a response that is nothing but the letter. A letter that
merely occurs in the text is never read: `I cannot tell` is no vote for I, and abstaining is wrong.
A `Final Answer:` line outranks the rest, and two of them that differ are no answer; of other
statements the first stands, as in MMLU-Pro's own scorer, also where it goes on "or (D)".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from training.benchmarks.formats import LETTERS
from training.benchmarks.response_text import before_next_question, own_words
from training.benchmarks.schema import Grade, Question

_WRAP = r"(?:\\(?:text|textbf|mathrm|mathbf|textrm|rm|bf|mbox)\s*\{\s*)?"
_OPEN = r"[\s*_`$\"'“‘]*(?:\\[(\[]\s*)?(?:\\boxed\s*\{\s*)?" + _WRAP + r"(?:\\?[(\[{]\s*)?" + _WRAP
_OPTION = r"(?:(?:option|choice|answer|letter|alternative)\s+)?"
# The letter may not be the start of a word or of a formula: `A.` yes, `Apple`, `A × B`, `I am` no.
_LETTER = r"(?P<letter>[A-Z])"
# Two options in one breath, `(A) or (B)`, are no final answer.
_HEDGE = re.compile(r"\s*[)\]}*_`]*\s*(?:or|and|,|/|&)\s*(?:option\s+)?[(\[*_`]*[A-Z][)\]*_`.,;\s]")
_AFTER = (
    r"(?=\s*[)\]}.,:;*_`$\"'”’!\\]|\s*$|\s*\n"
    r"|\s+(?:because|since|as\b|which|and\s+not|is\b|-|–|—|\())"
)
_STATED = _OPEN + _OPTION + _OPEN + _LETTER + _AFTER

_FINAL_LINE = re.compile(
    r"^[ \t>#*_`]*final[ \t]+answer[\s*_`]*[:：]" + _STATED, re.IGNORECASE | re.MULTILINE
)
_BOXED = re.compile(
    r"\\boxed\s*\{\s*" + _WRAP + r"(?:\\?[(\[]\s*)?" + _WRAP + _LETTER + r"(?=\s*[)\]}.,:;\\])"
)
_SENTENCE = re.compile(
    r"\b(?:answer(?:\s+(?:choice|option))?|(?:correct|right|best)\s+(?:choice|option))\b(?:\s+(?:to|for)\s+[^.\n:]{1,80}?)?"
    r"(?:\s+(?:here|therefore|thus|then|would|should|must|will))*"
    r"\s*(?:\bis\b|\bare\b|\bbe\b|=|[:：])(?:\s*[:：]|\s+(?:therefore|thus|clearly|indeed|likely|probably|most\s+likely|definitely))*"
    + _STATED,
    re.IGNORECASE,
)
_CORRECT = re.compile(
    r"\b(?:option|choice|answer)\s*[*_`(\[]*\s*" + _LETTER + r"\s*[)\]*_`]*\s*"
    r"(?:is|seems|would\s+be)\s+(?:therefore\s+)?(?:the\s+)?(?:correct|right|best|true|most\s+likely)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"\b(?:choose|pick|select|chose|go\s+with|going\s+with|it(?:['’]s|\s+is|\s+must\s+be))\s+"
    + _OPTION
    + r"\("
    + _LETTER
    + r"(?=\))",
    re.IGNORECASE,
)
_ALONE = re.compile(r"\A" + _OPEN + _LETTER + r"\s*[)\]}*_`$\"'.]*\s*\Z")
_LEADING = re.compile(r"\A[\s*_`]*\(?" + _LETTER + r"(?:\)|[.:](?=\s))\s*\S")


def read_choice(response: str, count: int) -> tuple[str | None, str]:
    """The chosen letter and how it was stated, or None and why not.

    `count` is the number of options. A stated letter beyond the options is returned too: it is what
    the model chose, and it cannot be right.
    """
    text = own_words(response)
    finals = _letters(_FINAL_LINE, text)
    if finals:
        place, _ = finals[0]
        cut = before_next_question(text, place)
        stated = list(dict.fromkeys(letter for at, letter in finals if at < len(cut)))
        if len(stated) > 1 or "?" in stated:
            return None, f"more than one final answer: {', '.join(stated)}"
        return stated[0], "final answer line"
    found = [
        (place, letter, how)
        for how, pattern in (
            ("answer sentence", _SENTENCE),
            ("boxed", _BOXED),
            ("option called correct", _CORRECT),
            ("option chosen", _CHOSEN),
        )
        for place, letter in _letters(pattern, text)
    ]
    if found:
        _, letter, how = min(found)
        return letter, how
    alone = _ALONE.match(text)
    if alone and alone["letter"].isupper():
        return alone["letter"], "nothing but the letter"
    leading = _LEADING.match(text)
    if leading and len(text.strip().splitlines()) == 1 and _place(leading["letter"], count):
        return leading["letter"], "option repeated"
    return None, "no choice is stated" if text.strip() else "the response is empty"


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
    """Places and letters of a pattern; `?` stands for two options in one final answer.

    The keywords ignore case, the letter does not, unless it stands in parentheses.
    """
    found = []
    for match in pattern.finditer(text):
        letter, at = match["letter"], match.start("letter")
        if letter.islower() and text[at - 1 : at + 2] != f"({letter})":
            continue
        hedged = pattern is _FINAL_LINE and _HEDGE.match(text[at + 1 : at + 40] + " ")
        found.append((match.start(), "?" if hedged else letter.upper()))
    return found


def _place(letter: str, count: int) -> bool:
    return LETTERS.index(letter) < count


def _same_text(choices: Sequence[str], letter: str, key: str) -> bool:
    if not choices or key not in LETTERS:
        return False
    return choices[LETTERS.index(letter)] == choices[LETTERS.index(key)]
