"""`anchorloop grade`: grade answers that were made elsewhere by the graders of the benchmarks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.errors import UserError
from flows.cli.json_input import JsonObject, as_answer, as_text, parse_object

if TYPE_CHECKING:
    from training.benchmarks.schema import AnswerKind, Grade, Question

GENERIC = "math"
_AT_ONCE = 256
_INFRA_LIMIT = 0.02


def grade(
    file: Annotated[
        Path, typer.Argument(help='JSONL of {"id", "response"}, with "answer" if need be.')
    ],
    benchmark: Annotated[
        str, typer.Option(help="A benchmark's name, or `math` for the generic grader.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="The benchmark's file, or a folder of benchmark files.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--json", help="Print the JSON lines alone, without a summary.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes for symbolic comparison.")] = 1,
) -> None:
    """Print {"id", "prediction", "correct", "reason"} for every line of FILE, in its order.

    The key is the benchmark's own where it has the id, else the line's "answer". `correct` is null
    where our own machinery failed.
    """
    rows = list(_rows(file))
    kind, questions = _questions(benchmark, rows, data)
    counts = asyncio.run(_grade_all(kind, questions, rows, benchmark == GENERIC, workers))
    _report(counts, quiet)


def _rows(file: Path) -> Iterator[tuple[str, JsonObject]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist; name a JSONL file of answers") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read as UTF-8 text ({error})") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file.name} line {number}"
        row = parse_object(line, where)
        for key in ("id", "response"):
            if key not in row:
                raise UserError(f"{where}: the key {key!r} is missing")
        as_text(row["response"], f"{where}: response")
        yield where, row


def _questions(
    benchmark: str, rows: list[tuple[str, JsonObject]], data: Path | None
) -> tuple[AnswerKind, list[Question]]:
    """The question of every row."""
    from training.benchmarks.schema import AnswerKind, Question

    known: dict[str, Question] = {}
    kind, missing = AnswerKind.MATH, ""
    if benchmark != GENERIC:
        all_have_answers = all(row.get("answer") is not None for _, row in rows)
        kind, known, missing = _load(benchmark, data, offline=all_have_answers)
    questions = []
    for where, row in rows:
        identity = str(row["id"])
        key = as_answer(row.get("answer"), f"{where}: answer")
        question = known.get(identity) or known.get(f"{benchmark}-{identity}")
        if question is None:
            if key is None:
                raise UserError(
                    f'{where}: no key is at hand for id {identity!r}; give "answer" in the line'
                    + (f", or the benchmark's file with --data ({missing})" if missing else "")
                )
            if kind is AnswerKind.CODE:
                raise UserError(f"{where}: {identity!r} is no problem of {benchmark}")
            question = Question(identity, "", key)
        questions.append(question)
    return kind, questions


def _load(
    benchmark: str, data: Path | None, offline: bool
) -> tuple[AnswerKind, dict[str, Question], str]:
    from training.benchmarks.loading import Missing, Sources, default_data_dir, load

    if data is not None and not data.exists():
        raise UserError(f"--data names {data}, which does not exist")
    own_file = data is not None and data.is_file()
    sources = Sources(
        files={benchmark: data} if own_file and data is not None else {},
        data_dir=None if own_file else data or default_data_dir(),
        offline=offline,
    )
    try:
        loaded = load(benchmark, sources)
    except ValueError as error:
        raise UserError(f"{str(error).rstrip('.')}; `{GENERIC}` is the generic grader") from None
    if isinstance(loaded, Missing):
        if own_file:
            raise UserError(loaded.reason)
        return loaded.entry.kind, {}, loaded.reason.rstrip(".")
    return loaded.entry.kind, {q.id: q for q in loaded.questions}, ""


async def _grade_all(
    kind: AnswerKind,
    questions: list[Question],
    rows: list[tuple[str, JsonObject]],
    generic: bool,
    workers: int,
) -> Counter[str]:
    from contextlib import AsyncExitStack

    from training.benchmarks.grading import Grader
    from training.benchmarks.schema import AnswerKind
    from training.benchmarks.verify_pool import GraderError
    from training.sandbox.client import Sandbox, SandboxError

    counts: Counter[str] = Counter()
    try:
        async with AsyncExitStack() as stack:
            sandbox = (
                await stack.enter_async_context(Sandbox()) if kind is AnswerKind.CODE else None
            )
            grader = await stack.enter_async_context(Grader(workers, sandbox, generic))
            for start in range(0, len(rows), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                grades = await asyncio.gather(
                    *(
                        grader.grade(kind, question, str(row["response"]))
                        for question, (_, row) in zip(questions[part], rows[part], strict=True)
                    )
                )
                for (_, row), verdict in zip(rows[part], grades, strict=True):
                    _print_line(row["id"], verdict)
                    counts.update(_counted(verdict))
    except (GraderError, SandboxError) as error:
        raise UserError(str(error)) from None
    return counts


def _print_line(identity: object, verdict: Grade) -> None:
    line = {
        "id": identity,
        "prediction": verdict.prediction,
        "correct": verdict.correct,
        "reason": verdict.reason,
    }
    text = json.dumps(line, ensure_ascii=False, default=str)
    # A lone surrogate has no bytes in UTF-8; its escape says the same in JSON.
    print(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _counted(verdict: Grade) -> list[str]:
    flags = ["all", verdict.status.value]
    if verdict.correct:
        flags.append("correct")
    if verdict.undecided:
        flags.append("undecided")
    return flags


def _report(counts: Counter[str], quiet: bool) -> None:
    total, infra = counts["all"], counts["infra"]
    usable = total - infra
    if not quiet and usable:
        print(
            f"{counts['correct']} of {usable} correct ({counts['correct'] / usable:.1%}), "
            f"{counts['unparsed']} without a readable answer, {counts['undecided']} undecided, "
            f"{infra} dropped by failures of the grader",
            file=sys.stderr,
        )
    if infra > _INFRA_LIMIT * max(total, 1):
        raise UserError(
            f"{infra} of {total} answers could not be graded by failures of our own machinery, "
            f"more than {_INFRA_LIMIT:.0%}; the verdicts above are no score"
        )
