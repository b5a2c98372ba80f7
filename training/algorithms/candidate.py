"""Reading the Curriculum's output: a `Problem:` part, then an `Answer:` part (method section 3)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from training.algorithms.answers import MAX_DIFFERENT_FIELDS, read_bare

# A marker stands at the start of a line, with optional markdown around it. Running text such as
# "Problem: ... Answer: 5" is read too, so each marker has a second form for the middle of a line.
_PROBLEM_LINE = re.compile(r"^[ \t>*_#]*Problem[*_]*[ \t]*:[*_]*", re.MULTILINE)
_PROBLEM_INLINE = re.compile(r"\bProblem[*_]*:[*_]*")
_ANSWER_LINE = re.compile(r"^[ \t>*_#]*(?:Final )?Answer[*_]*[ \t]*:[*_]*", re.MULTILINE)
_ANSWER_INLINE = re.compile(r"\b(?:Final )?Answer[*_]*:[*_]*")
_GIVEN_AWAY = re.compile(r"\b(?:final )?answer[*_]*\s{0,3}:[*_]*\s{0,3}(?=(\S.{0,200}))", re.I)
_CLOSING = " \t)]}*_.,;:?"


@dataclass(frozen=True)
class Candidate:
    """One output of the Curriculum.

    ``problem`` is the problem text, None if there is none; ``answer`` is the canonical label of
    the answer part, None if it has none. ``r_fmt`` is the format gate, 1 or 0.
    """

    problem: str | None
    answer: str | None
    r_fmt: int
    reason: str


def read_candidate(text: str) -> Candidate:
    """Read a Curriculum output and decide the format gate R_fmt.

    The problem is the text between the first `Problem:` and the first `Answer:` after it: one at
    the start of a line, or an earlier one that gives the answer, since the Executor must not see
    it. The answer is the first line of its part that isn't blank; what follows is not looked at,
    except that a further `Answer:` before another problem must not contradict the first.
    """
    start = _PROBLEM_LINE.search(text) or _PROBLEM_INLINE.search(text)
    if start is None:
        return Candidate(None, None, 0, "no 'Problem:' part")
    marker = _answer_marker(text, start.end())
    end = marker.begin if marker else len(text)
    problem = text[start.end() : end].strip().rstrip(" ([{*_")
    if not problem:
        return Candidate(None, None, 0, "the 'Problem:' part is empty")
    if marker is None:
        return Candidate(problem, None, 0, "no 'Answer:' part after the problem")
    rest = text[marker.end :]
    following = _PROBLEM_LINE.search(rest)
    parts = _ANSWER_LINE.split(rest[: following.start()] if following else rest)
    answers = [_first_line(part) for part in parts]
    if marker.given is not None:
        answers[0] = marker.given
    first, *others = dict.fromkeys(answers)
    answer = read_bare(first)
    if answer.label is None:
        return Candidate(problem, None, 0, f"the 'Answer:' part has no label: {answer.reason}")
    if len(others) >= MAX_DIFFERENT_FIELDS:
        return Candidate(problem, None, 0, f"over {MAX_DIFFERENT_FIELDS} different 'Answer:' parts")
    if any(read_bare(other).label != answer.label for other in others):
        return Candidate(problem, None, 0, "two different 'Answer:' parts")
    return Candidate(problem, answer.label, 1, "one problem with one answer")


class _Marker(NamedTuple):
    """Where the marker that ends the problem begins and ends; `given` is a value read behind it."""

    begin: int
    end: int
    given: str | None = None


def _answer_marker(text: str, start: int) -> _Marker | None:
    """The first marker that gives the answer away, else the first at the start of a line.

    An `Answer:` in running text gives it away where a value follows. In other letters ("each
    answer: 5 points") it does only where that value is the answer that the candidate states.
    """
    line = _ANSWER_LINE.search(text, start)
    stated = read_bare(_first_line(text[line.end() :])).label if line else None
    end = line.start() if line else len(text)
    for early in islice(_GIVEN_AWAY.finditer(text, start, end), MAX_DIFFERENT_FIELDS):
        spellings = (early[1], early[1].strip(_CLOSING), early[1].split()[0].strip(_CLOSING))
        for written in spellings:
            label = read_bare(written).label
            if label is not None and (_ANSWER_INLINE.match(early[0]) or label == stated):
                return _Marker(early.start(), early.end(), written)
    found = line or _ANSWER_INLINE.search(text, start)
    return _Marker(*found.span()) if found else None


def _first_line(part: str) -> str:
    lines = part.strip().splitlines()
    return lines[0].strip() if lines else ""
