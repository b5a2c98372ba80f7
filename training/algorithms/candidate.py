"""Reading the Curriculum's output: a `Problem:` part, then an `Answer:` part (method section 3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from training.algorithms.answers import Answer, read_bare

# A marker stands at the start of a line, with optional markdown around it. Running text such as
# "Problem: ... Answer: 5" is read too, so each marker has a second form for the middle of a line.
_PROBLEM_LINE = re.compile(r"^[ \t>*_#]*Problem[*_]*[ \t]*:[*_]*", re.MULTILINE)
_PROBLEM_INLINE = re.compile(r"\bProblem[*_]*:[*_]*")
_ANSWER_LINE = re.compile(r"^[ \t>*_#]*(?:Final )?Answer[*_]*[ \t]*:[*_]*", re.MULTILINE)
_ANSWER_INLINE = re.compile(r"\b(?:Final )?Answer[*_]*:[*_]*")


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

    The problem is the text between the first `Problem:` and the first `Answer:` after it. The
    answer is the first line of its part that isn't blank; what follows is not looked at, except
    that a further `Answer:` before another problem must not contradict the first.
    """
    start = _PROBLEM_LINE.search(text) or _PROBLEM_INLINE.search(text)
    if start is None:
        return Candidate(None, None, 0, "no 'Problem:' part")
    marker = _ANSWER_LINE.search(text, start.end()) or _ANSWER_INLINE.search(text, start.end())
    problem = text[start.end() : marker.start() if marker else len(text)].strip() or None
    if problem is None:
        return Candidate(None, None, 0, "the 'Problem:' part is empty")
    if marker is None:
        return Candidate(problem, None, 0, "no 'Answer:' part after the problem")
    rest = text[marker.end() :]
    following = _PROBLEM_LINE.search(rest)
    parts = _ANSWER_LINE.split(rest[: following.start()] if following else rest)
    answers = [_read_part(part) for part in parts]
    if answers[0].label is None:
        return Candidate(problem, None, 0, f"the 'Answer:' part has no label: {answers[0].reason}")
    if any(answer.label != answers[0].label for answer in answers[1:]):
        return Candidate(problem, None, 0, "two different 'Answer:' parts")
    return Candidate(problem, answers[0].label, 1, "one problem with one answer")


def _read_part(part: str) -> Answer:
    lines = part.strip().splitlines()
    return read_bare(lines[0].strip() if lines else "")
