r"""Find the answer in a response to a question whose answer is free-form.

In this order: `Final Answer:` statements, boxes, lines such as `#### 5` and sentences such as "the
answer is …", and a response that is nothing but an answer. Only the generic grader goes further and
takes the last value of a running text; benchmark scores never rest on that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from training.benchmarks.math_key import keys
from training.benchmarks.math_prose import mentions_value, stated_value
from training.benchmarks.math_terms import FORMULA, is_prose
from training.benchmarks.response_text import before_next_question, own_words


@dataclass(frozen=True)
class Reading:
    """`answer` is None when none was found. `how` names the form it was found in, or the reason."""

    answer: str | None
    how: str


_FINAL = re.compile(r"(?<![A-Za-z])final\s+answer[\s*_`]*(?:is\s*)?[:：][\s*_`]*", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(?<![A-Za-z])(?:answer|result)\b(?:\s+(?:to|for|of)\s[^.\n:$\\]{1,80}?)?[\s*_`]*"
    r"(?:(?:\bis\b|\bare\b|=|[:：])(?:\s*[:：]|\s+(?:therefore|thus|simply|equal\s+to)\b)*"
    r"|(?=\\[\[(]|\$|\s\d))[\s*_`]*",
    re.IGNORECASE,
)
_MARKED = re.compile(r"^[ \t]*(?:####|A:|Ans(?:wer)?\.?:)[ \t]*(?=\S)", re.MULTILINE)
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?:\{|(?=[^\s{]))|\\framebox\s*\{|\\bbox\s*(?:\[[^\]\n]*\]\s*)?\{"
)
_JOINT = re.compile(r"[^.\n]{0,60}?(?:,|;|\band\b|\bor\b|\\quad|^)[^.\n]{0,60}", re.DOTALL)
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z]|\s*$)|\n|(?<=\s)I hope it is correct", re.MULTILINE)
_SENTENCE_BREAK = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?]\$)|(?<=[.!?]\$\$)|(?<=[.!?]\\[\])]))\s+(?=[A-Z])"
)
_CODE = re.compile(r"__\w+__|\bimport\b|\w\([\"']")
_LEADING_MARKS = re.compile(r"\A[ \t\r*_`:]*(?:\n[\s*_`:>]*)?")
_MAX_STATEMENT = 2000  # characters of a statement or line that are looked at
_MAX_STATEMENTS = 20
_MAX_BOXES = 40


def read_stated(response: str) -> Reading:
    """The answer a response states as its answer."""
    text = _first_answered(response)
    finals = list(_FINAL.finditer(text))
    if finals:
        within = finals[:_MAX_STATEMENTS] + finals[-1:]
        answers = [_statement(text[m.end() : m.end() + _MAX_STATEMENT]) for m in within]
        return _agreed([a for a in answers if a], "final answer line")
    boxes = boxed(text)
    if boxes:
        return Reading(boxes, "box")
    for pattern, how in ((_MARKED, "marked line"), (_SENTENCE, "answer sentence")):
        found = list(pattern.finditer(text))
        if found:
            last = found[-1].end()
            answer = _statement(text[last : last + _MAX_STATEMENT])
            if answer:
                return Reading(answer, how)
    text = text.strip()
    if not text:
        return Reading(None, "the response is empty")
    if _BOX.search(text):
        return Reading(None, "a box that does not close")
    if len(text.splitlines()) == 1 and (keys(text) or not is_prose(text)):
        return Reading(text, "bare answer")
    return Reading(None, "no answer is stated")


def read_any(response: str) -> Reading:
    """The answer of a response that may also be a running text or a worded bare answer."""
    stated = read_stated(response)
    text = _first_answered(response).strip()
    if stated.answer is not None or not text or "different answers" in stated.how:
        return stated
    if _CODE.search(text):
        return Reading(None, "code, not an answer")
    for line in reversed(text.splitlines()):
        if line.strip() and keys(line):
            return Reading(line.strip(), "last line")
        for sentence in reversed(_SENTENCE_BREAK.split(line[-_MAX_STATEMENT:])):
            if mentions_value(sentence):
                value = stated_value(sentence, last=True)
                return Reading(value, "last value of the text" if value else "no single answer")
    if len(text) <= 60:
        return Reading(text, "bare answer")
    return stated


def _first_answered(response: str) -> str:
    """The model's words without a further question that it invents once it has answered its own.

    Every form of answer counts, whichever is then read: a box in the invented question must not
    outweigh the sentence that answered the real one.
    """
    text = own_words(response)
    for pattern in (_FINAL, _BOX, _MARKED, _SENTENCE):
        for match in pattern.finditer(text):
            cut = before_next_question(text, match.end())
            if cut[match.end() :].strip(" \t\r\n*_`#$"):
                text = cut
                break  # the earliest of a form; an earlier one of another form cuts further
    return text


def boxed(text: str) -> str | None:
    r"""The content of the last box, with the boxes that stand with it in one sentence.

    `\boxed{2} and \boxed{3}` is one list of two answers; repeating a box adds nothing.
    """
    found: list[tuple[int, int, str]] = []
    for match in list(_BOX.finditer(text))[-_MAX_BOXES:]:
        content, end = _box_content(text, match)
        if content:
            found.append((match.start(), end, content))
    if not found:
        return None
    group = [found[-1]]
    for box in reversed(found[:-1]):
        between = text[box[1] : group[0][0]]
        if len(between) > 80 or not _JOINT.fullmatch(between):
            break
        group.insert(0, box)
    return ", ".join(dict.fromkeys(content for _, _, content in group))


def _box_content(text: str, match: re.Match[str]) -> tuple[str | None, int]:
    start = match.end()
    if not match[0].endswith("{"):
        bare = re.match(r"[^\s$\\.,}]+", text[start:])
        return (bare[0], start + bare.end()) if bare else (None, start)
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            content = text[start:place].strip()
            inner = _BOX.match(content)
            if inner:
                return _box_content(content, inner)[0], place + 1
            return content, place + 1
    return None, len(text)


def _agreed(answers: list[str], how: str) -> Reading:
    if not answers:
        return Reading(None, f"{how} holds no answer")
    different = {frozenset(keys(a)) or a for a in answers}
    if len(different) > 1:
        return Reading(None, f"two different answers: {answers[0]}; {answers[-1]}")
    return Reading(answers[-1], how)


def _statement(tail: str) -> str | None:
    """The answer at the start of `tail`, up to the end of its sentence."""
    tail = _LEADING_MARKS.sub("", tail)  # a `>` on the same line is a relation and no quotation
    sentence = _SENTENCE_END.split(tail, maxsplit=1)[0].strip(" \t*_`")
    box = boxed(sentence) or (boxed(tail[:400]) if tail.startswith(("$", "\\")) else None)
    if box:
        return box
    opening = re.match(r"\$\$|\\\[", tail)
    if opening:
        math = FORMULA.match(tail)
        return next(filter(None, math.groups())).strip() if math else None
    inner = _SENTENCE.search(sentence)
    if inner and inner.end() < len(sentence):
        sentence = sentence[inner.end() :]
    sentence = sentence.strip()
    if not sentence:
        return None
    if keys(sentence) or not is_prose(sentence):
        return sentence
    if mentions_value(sentence):
        return stated_value(sentence)
    return sentence if len(sentence.split()) <= 6 else None
