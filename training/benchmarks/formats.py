"""Row readers: one function a published format, each turning a row into a `Question`.

A row of the neutral schema (`id`, `question`, `answer` as texts, with `choices`, `answer_index` and
`subject` where they apply) is read as it is whatever the benchmark; anything else goes through the
reader that the benchmark names.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from training.benchmarks.schema import Question
from training.seeds import derive_seed

Row = Mapping[str, Any]
Reader = Callable[[Row, str], Question]

NEUTRAL = {"id", "question", "answer", "choices", "answer_index", "subject"}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CHOICE_MARK = re.compile(r"^\s*\(?[A-Z][).]\s*")
_LAST_BOX = re.compile(r"\\boxed\s*\{")


def is_neutral(row: Row) -> bool:
    """True when the row has the neutral schema's keys and nothing else."""
    keys = {key for key, value in row.items() if value is not None}
    return keys <= NEUTRAL and all(
        isinstance(row.get(key), str) and row[key].strip() for key in ("id", "question", "answer")
    )


def read_neutral(row: Row) -> Question:
    """A row of the neutral schema.

    Raises:
        ValueError: the letter and the index of a choice disagree, or the letter has no choice.
    """
    choices = tuple(str(choice) for choice in row.get("choices") or ())
    question = Question(
        id=row["id"],
        question=row["question"],
        answer=row["answer"].strip(),
        choices=choices,
        subject=row.get("subject"),
    )
    if choices:
        place = _letter_place(question.answer, len(choices))
        index = row.get("answer_index")
        if index is not None and int(index) != place:
            raise ValueError(
                f"its letter {question.answer!r} and answer_index {index} name different choices"
            )
    return question


def plain_math(row: Row, name: str) -> Question:
    """MATH-500, AMC23, AIME and Minerva collections: a problem and its final answer."""
    answer = row.get("answer")
    if answer is None:
        answer = last_boxed(_text(row, "solution"))
    return Question(
        id=_identity(row, name, "unique_id", "id", "ID", "idx"),
        question=_text(row, "problem", "question", "Problem"),
        answer=_plain_number(str(answer)),
        subject=_optional(row, "subject", "type"),
    )


def gsm8k(row: Row, name: str) -> Question:
    """GSM8K: the answer follows `####` in the worked solution."""
    answer = _text(row, "answer").rpartition("####")[2].strip().replace(",", "")
    return Question(
        id=_identity(row, name, "id", "idx"), question=_text(row, "question"), answer=answer
    )


def olympiadbench(row: Row, name: str) -> Question:
    """OlympiadBench: `final_answer` is a list with one text, `unit` and `error` stand apart."""
    final = row.get("final_answer")
    answer = final[0] if isinstance(final, list | tuple) and final else final or row.get("answer")
    tolerance = _optional(row, "error")
    return Question(
        id=_identity(row, name, "id", "idx"),
        question=_text(row, "question", "problem"),
        answer=str(answer).replace("$", "").strip(),
        subject=_optional(row, "subfield", "subject"),
        unit=_optional(row, "unit"),
        tolerance=_tolerance(tolerance),
    )


def mmlu_pro(row: Row, name: str) -> Question:
    """MMLU-Pro: the letter decides where it and the index disagree; padding `N/A` is dropped."""
    choices = tuple(c for c in map(str, row["options"]) if c != "N/A")
    answer = _text(row, "answer").strip().upper()
    _letter_place(answer, len(choices))
    return Question(
        id=_identity(row, name, "question_id", "id"),
        question=_text(row, "question"),
        answer=answer,
        choices=choices,
        subject=_optional(row, "category"),
    )


def supergpqa(row: Row, name: str) -> Question:
    """SuperGPQA: `answer_letter` names one of up to ten `options`."""
    choices = tuple(map(str, row["options"]))
    answer = _text(row, "answer_letter").strip().upper()
    _letter_place(answer, len(choices))
    return Question(
        id=_identity(row, name, "uuid", "id"),
        question=_text(row, "question"),
        answer=answer,
        choices=choices,
        subject=_optional(row, "discipline"),
    )


def gpqa(row: Row, name: str) -> Question:
    """GPQA: four texts, the right one first; their order is drawn once from the record's id."""
    identity = _identity(row, name, "Record ID", "id")
    right = _text(row, "Correct Answer").strip()
    choices = [right, *(_text(row, f"Incorrect Answer {i}").strip() for i in (1, 2, 3))]
    order = list(range(4))
    random.Random(derive_seed("gpqa", identity)).shuffle(order)
    return Question(
        id=identity,
        question=_text(row, "Question").strip(),
        answer=LETTERS[order.index(0)],
        choices=tuple(choices[i] for i in order),
        subject=_optional(row, "High-level domain"),
    )


def agieval(row: Row, name: str) -> Question:
    """AGIEval: its own files (`passage`, `options`, `label`) and the hub's (`query`, `gold`)."""
    identity = _identity(row, name, "id")
    if "query" in row:
        gold = row["gold"][0] if isinstance(row["gold"], list | tuple) else row["gold"]
        choices = [_CHOICE_MARK.sub("", str(c)) for c in row.get("choices") or ()]
        query = str(row["query"]).partition("Answer Choices:")[0]
        query = re.sub(r"^\s*Q:\s*", "", query).rstrip()
        answer = LETTERS[int(gold)] if choices else str(gold)
        return Question(identity, query, answer, tuple(choices), name)
    passage = _optional(row, "passage")
    text = _text(row, "question")
    options = row.get("options") or ()
    choices = [_CHOICE_MARK.sub("", str(c)) for c in options]
    stated = _optional(row, "label") if choices else _optional(row, "answer")
    if stated is None:
        raise ValueError("it has neither a label nor an answer")
    question = f"{passage}\n\n{text}" if passage else text
    return Question(identity, question, stated, tuple(choices), name)


def bbeh(row: Row, name: str) -> Question:
    """BBEH: `input` and `target`, with the task's name beside them or as the file's."""
    return Question(
        id=_identity(row, name, "id"),
        question=_text(row, "input"),
        answer=_text(row, "target").strip(),
        subject=_optional(row, "task", "subject") or name,
    )


def humaneval(row: Row, name: str) -> Question:
    """HumanEval: the prompt is the question, the reference body the answer."""
    return Question(
        id=_identity(row, name, "task_id"),
        question=_text(row, "prompt"),
        answer=_text(row, "canonical_solution"),
        tests=_text(row, "test"),
        entry_point=_text(row, "entry_point"),
    )


READERS: dict[str, Reader] = {
    "plain_math": plain_math,
    "gsm8k": gsm8k,
    "olympiadbench": olympiadbench,
    "mmlu_pro": mmlu_pro,
    "supergpqa": supergpqa,
    "gpqa": gpqa,
    "agieval": agieval,
    "bbeh": bbeh,
    "bbeh_mini": bbeh,
    "humaneval": humaneval,
}


def last_boxed(text: str) -> str:
    r"""The content of the last balanced `\boxed{…}`.

    Raises:
        ValueError: there is none.
    """
    for match in reversed(list(_LAST_BOX.finditer(text))):
        depth = 1
        for place in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[match.end() : place].strip()
    raise ValueError("its solution has no boxed answer")


def _text(row: Row, *keys: str) -> str:
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return value
    raise ValueError(f"it has no text under {' or '.join(repr(k) for k in keys)}")


def _optional(row: Row, *keys: str) -> str | None:
    for key in keys:
        value = row.get(key)
        if value is not None and str(value).strip():
            return str(value).strip()
    return None


def _identity(row: Row, name: str, *keys: str) -> str:
    value = _optional(row, *keys)
    if value is None:
        raise ValueError(f"it has no identity under {' or '.join(repr(k) for k in keys)}")
    return value if value.startswith(name) else f"{name}-{value}"


def _plain_number(answer: str) -> str:
    """`27.0` as `27` and `025` as `25`: how some collections store integers."""
    answer = answer.strip()
    if re.fullmatch(r"-?\d+\.0", answer):
        answer = answer[:-2]
    if re.fullmatch(r"-?0+\d+", answer):
        answer = str(int(answer))
    return answer


def _tolerance(text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        return Fraction(text)
    except ValueError:
        raise ValueError(f"its tolerance {text!r} is not a number") from None


def _letter_place(letter: str, count: int) -> int:
    place = LETTERS.find(letter) if len(letter) == 1 else -1
    if not 0 <= place < count:
        raise ValueError(f"its key {letter!r} is not one of its {count} choices")
    return place
