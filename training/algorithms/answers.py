"""Final answers of model outputs, as canonical keys that vote (docs/method.md section 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from training.algorithms.answer_key.integers import NotExact
from training.algorithms.answer_key.label import label_of
from training.algorithms.answer_key.plain_text import strip_special_tokens

MAX_DIFFERENT_FIELDS = 8
"""Different spellings of its answer that one output may have."""
_SHOWN = 40

# What was not written as an answer: tool calls and observations, also where they do not close.
_TOOL_SPAN = re.compile(r"<(python|output)>.*?(?:</\1>|\Z)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_FIELD = re.compile(
    r"[\s>*_#`~-]*(?:\\text(?:bf)?\s?\{)?final\s{1,4}answer[\s*_`]*[:：][\s*_`}]*(.*)", re.I
)


@dataclass(frozen=True)
class Answer:
    """What a text states as its answer.

    `label` is the canonical key, None exactly when `status` is invalid; `reason` says in a few
    words why.
    """

    status: Literal["valid", "invalid"]
    label: str | None
    reason: str


def canonical_label(answer: str, *, percent: bool = True) -> str | None:
    """Canonical key of a bare answer, or None when it has no exact canonical value.

    Two answers are the same exactly when their keys are equal strings. A key is its own key.
    With `percent` a percent sign divides by 100; without, it is read as a unit.
    """
    return read_bare(answer, percent=percent).label


def read_bare(answer: str | None, *, percent: bool = True) -> Answer:
    """Read an answer that stands alone, such as a Curriculum's `Answer:` part."""
    if answer is None:
        return Answer("invalid", None, "no answer")
    try:
        return Answer("valid", label_of(answer, percent), "one answer")
    except NotExact as refusal:
        return Answer("invalid", None, str(refusal))


def read_output(text: str, *, percent: bool = True) -> Answer:
    """Read a finished model output; observations must have been cut out of `text`.

    Valid when its `Final Answer:` lines, outside tool calls, all have one and the same key.
    """
    fields = list(dict.fromkeys(_fields(text)))
    if not fields:
        return Answer("invalid", None, "no 'Final Answer:' line")
    labels: list[str] = []
    for field in fields[:MAX_DIFFERENT_FIELDS]:
        answer = read_bare(field, percent=percent)
        if answer.label is None:
            shown = _shorten(field).encode("utf-8", "replace").decode()
            return Answer("invalid", None, f"malformed final answer '{shown}': {answer.reason}")
        if answer.label not in labels:
            labels.append(answer.label)
        if len(labels) > 1:
            shown = ", ".join(map(_shorten, labels))
            return Answer("invalid", None, f"two different labels: {shown}")
    if len(fields) > MAX_DIFFERENT_FIELDS:
        return Answer("invalid", None, f"more than {MAX_DIFFERENT_FIELDS} different final answers")
    return Answer("valid", labels[0], "one final answer")


def states_final_answer(text: str) -> bool:
    """Whether `text` holds a complete `Final Answer:` line outside tool calls.

    Complete means not empty and ended, by a line break or by the start of a tool call: the line
    that is still being written could go on.
    """
    *ended, _ = _written_lines(text)
    return any(field.strip() for field in _fields_of(ended))


def _fields(text: str) -> list[str]:
    return _fields_of(_written_lines(strip_special_tokens(text)))


def _fields_of(lines: list[str]) -> list[str]:
    return [match[1] for line in lines if (match := _FIELD.match(line))]


def _written_lines(text: str) -> list[str]:
    """Lines of what was written outside tool calls; a call ends the line before it."""
    return _LINE_END.split(_TOOL_SPAN.sub("\n", text))


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
