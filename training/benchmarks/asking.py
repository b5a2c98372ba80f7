"""How a question is put: the text of its prompt, by the kind of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.benchmarks.formats import LETTERS
from training.benchmarks.schema import AnswerKind, Question

_TEMPLATE = {
    AnswerKind.MATH: "benchmark_math",
    AnswerKind.MINERVA: "benchmark_math",
    AnswerKind.OLYMPIAD: "benchmark_math",
    AnswerKind.CHOICE: "benchmark_choice",
    AnswerKind.BBEH: "benchmark_text",
    AnswerKind.CODE: "benchmark_code",
}
TOOL_TEMPLATE = "benchmark_tool"
TEMPLATE_NAMES = (*sorted(set(_TEMPLATE.values())), TOOL_TEMPLATE)


class Asker:
    """Fills the templates, whose files are given by name.

    With `max_code_chars` the prompts offer the Python tool, with None they do not.
    """

    def __init__(self, templates: Mapping[str, Path], max_code_chars: int | None) -> None:
        texts = {n: p.read_text(encoding="utf-8").rstrip("\n") for n, p in templates.items()}
        tool = ""
        if max_code_chars is not None:
            tool = texts[TOOL_TEMPLATE].replace("{max_code_chars}", str(max_code_chars)) + "\n"
        self._texts = {name: text.replace("{tool}", tool) for name, text in texts.items()}

    def prompt(self, kind: AnswerKind, question: Question) -> str:
        """The prompt's text. Neither a key nor a test is ever part of it."""
        if kind is AnswerKind.CHOICE and not question.choices:
            kind = AnswerKind.MATH  # AGIEval's cloze questions
        return self._texts[_TEMPLATE[kind]].replace("{problem}", problem(question))


def problem(question: Question) -> str:
    """The question with its options, one a line behind its letter, and the unit it asks for."""
    parts = [question.question.strip("\n")]
    if question.choices:
        options = zip(LETTERS, question.choices, strict=False)
        parts.append("\n".join(f"({letter}) {choice}" for letter, choice in options))
    if question.unit is not None:
        parts.append(f"(Unit of the answer: {question.unit.strip('$')})")
    return "\n\n".join(parts)
