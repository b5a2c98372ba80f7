"""Run benchmarks as one stream of responses: longest first, resumable, shardable, graded beside.

The runner knows neither engine nor tool: it hands jobs to a `Generator` and grades what comes back
while further responses are generated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from training.benchmarks.grading import Grader
from training.benchmarks.loading import Loaded
from training.benchmarks.metrics import Outcome, Score, score
from training.benchmarks.responses import Key, Ledger, Response
from training.benchmarks.schema import AnswerKind, Grade, Question
from training.seeds import derive_seed


@dataclass(frozen=True)
class Job:
    """One response to make: sample `sample` of a question; `sampled` or greedy."""

    benchmark: str
    kind: AnswerKind
    question: Question
    sample: int
    sampled: bool
    seed: int

    @property
    def key(self) -> Key:
        """What identifies the response on disk."""
        return (self.benchmark, self.question.id, self.sample)


class Generator(Protocol):
    """Makes responses; many calls are in flight at once."""

    async def generate(self, job: Job) -> Response: ...


def plan_jobs(
    benchmarks: Sequence[Loaded],
    seed: int,
    limit: int | None = None,
    shard: tuple[int, int] = (0, 1),
) -> list[Job]:
    """The jobs of all benchmarks in the order in which they start.

    Benchmarks with long answers come first, so that no long tail is left at the end; within one,
    longer questions come first and the samples of a question stand together and share its prefix.
    `limit` keeps the first questions of each benchmark in file order, and `shard` (index, count)
    every count-th of them with all its samples.

    Raises:
        ValueError: the shard does not exist.
    """
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"there is no shard {index} of {count}; count from 0")
    jobs = []
    for loaded in sorted(benchmarks, key=lambda b: -b.entry.expected_tokens):
        entry = loaded.entry
        questions = loaded.questions[:limit][index::count]
        for question in sorted(questions, key=lambda q: -len(q.question)):
            for sample in range(entry.samples):
                jobs.append(
                    Job(
                        entry.name,
                        entry.kind,
                        question,
                        sample,
                        sampled=entry.samples > 1,
                        seed=derive_seed(seed, "benchmark", entry.name, question.id, sample),
                    )
                )
    return jobs


async def run(
    jobs: Sequence[Job],
    generator: Generator,
    grader: Grader,
    ledger: Ledger,
    concurrency: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Make and grade every response that the ledger does not hold yet.

    A response whose grading failed in our own machinery is graded again. `concurrency` bounds the
    jobs in flight. What the generator raises ends the run, with all that was finished kept.
    """
    todo = deque(job for job in jobs if not ledger.done(job.key))
    made = len(jobs) - len(todo)
    ungraded = [job for job in jobs if ledger.done(job.key) and not ledger.graded(job.key)]

    async def worker() -> None:
        nonlocal made
        while todo:
            job = todo.popleft()
            ledger.add_response(job.key, await generator.generate(job))
            made += 1
            progress(made, len(jobs))
            await grade(job)

    async def grade(job: Job) -> None:
        ledger.add_grade(job.key, await grade_response(grader, job, ledger.responses[job.key]))

    progress(made, len(jobs))
    async with asyncio.TaskGroup() as group:
        for job in ungraded:
            group.create_task(grade(job))
        for _ in range(min(concurrency, len(todo))):
            group.create_task(worker())


async def grade_response(grader: Grader, job: Job, response: Response) -> Grade:
    """Grade a response; one that was cut is read up to its last whole line."""
    if response.infra:
        return Grade.infra("the response could not be generated")
    text = response.text
    if response.truncated:
        text = text[: text.rfind("\n") + 1]
    return await grader.grade(job.kind, job.question, text)


def score_benchmarks(
    benchmarks: Iterable[Loaded], jobs: Iterable[Job], ledger: Ledger, seed: int
) -> list[Score]:
    """The score of each benchmark over its jobs; what the ledger lacks counts as missing."""
    by_name: dict[str, list[Job]] = {}
    for job in jobs:
        by_name.setdefault(job.benchmark, []).append(job)
    scores = []
    for loaded in benchmarks:
        entry = loaded.entry
        mine = by_name.get(entry.name, [])
        outcomes = [
            _outcome(job, ledger.responses[job.key], ledger.grades[job.key])
            for job in mine
            if job.key in ledger.responses and job.key in ledger.grades
        ]
        expected = len({job.question.id for job in mine})
        scores.append(score(entry.name, entry.metric, outcomes, expected, entry.samples, seed))
    return scores


def _outcome(job: Job, response: Response, grade: Grade) -> Outcome:
    return Outcome(
        question_id=job.question.id,
        sample=job.sample,
        correct=grade.correct,
        status=grade.status,
        truncated=response.truncated,
        tool_calls=response.tool_calls,
        undecided=grade.undecided,
        subject=job.question.subject,
    )
