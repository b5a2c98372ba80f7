"""The evaluation runner with scripted policies: exact scores, resuming, shards, infra."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from training.benchmarks.asking import TEMPLATE_NAMES, Asker
from training.benchmarks.catalog import benchmark
from training.benchmarks.evaluation import Report, evaluate
from training.benchmarks.grading import Grader
from training.benchmarks.loading import Loaded
from training.benchmarks.responses import Ledger, Response
from training.benchmarks.runner import Job, plan_jobs
from training.benchmarks.schema import AnswerKind, Grade, Question
from training.prompts import template_path

MADE_BY = {"model": "scripted"}


def questions(name: str, count: int) -> Loaded:
    rows = tuple(
        Question(f"{name}-{i}", f"What is {i} + {i}?" + "?" * i, str(2 * i)) for i in range(count)
    )
    return Loaded(benchmark(name), rows, "scripted", "none", ())


class Scripted:
    """Answers right when `right(job)` says so; may fail at chosen calls."""

    def __init__(self, right: Any, fail_at: int | None = None) -> None:
        self.right, self.fail_at = right, fail_at
        self.calls: Counter[Any] = Counter()

    async def generate(self, job: Job) -> Response:
        if self.fail_at is not None and self.calls.total() >= self.fail_at:
            raise RuntimeError("killed")
        self.calls[job.key] += 1
        answer = job.question.answer if self.right(job) else "-1"
        return Response(f"So.\nFinal Answer: {answer}\n", tool_calls=2, seed=job.seed)


async def run(
    folder: Path, loaded: list[Loaded], generator: Any, **more: Any
) -> tuple[Report, Ledger]:
    async with Grader() as grader:
        report, _, ledger = await evaluate(
            loaded, {}, generator, grader, folder, made_by=MADE_BY, seed=3, concurrency=16, **more
        )
    return report, ledger


async def test_pass_at_1_is_exact_and_mean_at_32_right_within_sampling_error(
    tmp_path: Path,
) -> None:
    draw = random.Random(9)
    rates = {f"aime24-{i}": i / 29 for i in range(30)}

    def right(job: Job) -> bool:
        if job.benchmark == "math500":
            return int(job.question.id.rpartition("-")[2]) % 3 == 0
        return draw.random() < rates[job.question.id]

    report, _ = await run(
        tmp_path, [questions("math500", 50), questions("aime24", 30)], Scripted(right)
    )
    by_name = {s.benchmark: s for s in report.scores}
    assert by_name["math500"].value == 17 / 50
    spread = (fmean(r * (1 - r) for r in rates.values()) / (30 * 32)) ** 0.5
    assert by_name["aime24"].value == pytest.approx(0.5, abs=4 * spread)
    assert (by_name["aime24"].metric, by_name["aime24"].tool_calls) == ("mean@32", 2.0)
    assert report.averages[0].missing == ("amc23", "gsm8k", "minerva", "olympiadbench", "aime25")


async def test_a_killed_evaluation_repeats_nothing(tmp_path: Path) -> None:
    loaded = [questions("math500", 40)]
    first = Scripted(lambda job: True, fail_at=25)
    with pytest.raises(ExceptionGroup):
        await run(tmp_path, loaded, first)
    with (tmp_path / "responses.jsonl").open("a") as stream:
        stream.write('{"benchmark": "math500", "id": "torn')
    second = Scripted(lambda job: True)
    report, _ = await run(tmp_path, loaded, second)
    assert first.calls.total() == 25
    assert second.calls.total() == 15
    assert not first.calls & second.calls
    assert report.scores[0].value == 1.0
    assert report.scores[0].complete
    third = Scripted(lambda job: False)
    again, _ = await run(tmp_path, loaded, third)
    assert third.calls.total() == 0
    assert again.as_json() == report.as_json()


async def test_infra_failures_are_dropped_and_tried_again_on_resume(tmp_path: Path) -> None:
    class Flaky(Scripted):
        async def generate(self, job: Job) -> Response:
            good = await super().generate(job)
            return replace(good, infra=self.right(job))

    loaded = [questions("math500", 100)]
    flaky = Flaky(lambda job: job.question.id == "math500-7")
    report, _ = await run(tmp_path, loaded, flaky)
    assert (report.scores[0].infra, report.scores[0].n) == (1, 99)
    good = Scripted(lambda job: True)
    report, _ = await run(tmp_path, loaded, good)
    assert list(good.calls) == [("math500", "math500-7", 0)]
    assert (report.scores[0].infra, report.scores[0].n) == (0, 100)


async def test_grades_that_our_machinery_failed_to_give_are_given_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: Grader, __: AnswerKind, question: Question, ___: str) -> Grade:
        return Grade.infra("the pool died") if question.id == "math500-7" else Grade("x", True, "")

    loaded = [questions("math500", 100)]
    with monkeypatch.context() as patch:
        patch.setattr(Grader, "grade", fails)
        report, _ = await run(tmp_path, loaded, Scripted(lambda job: True))
    assert (report.scores[0].infra, report.scores[0].n) == (1, 99)
    grades = tmp_path / "grades.jsonl"
    before = grades.read_text()
    again = Scripted(lambda job: True)
    report, _ = await run(tmp_path, loaded, again)
    assert again.calls.total() == 0
    assert (report.scores[0].infra, report.scores[0].n) == (0, 100)
    (line,) = grades.read_text().removeprefix(before).splitlines()
    assert json.loads(line)["id"] == "math500-7"
    third, _ = await run(tmp_path, loaded, again)  # the later line counts
    assert third.as_json() == report.as_json()


async def test_a_cut_response_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    class Cut:
        async def generate(self, job: Job) -> Response:
            whole = "\n" if job.question.id.endswith("1") else ""
            return Response(f"Final Answer: {job.question.answer}{whole}", truncated=True)

    report, _ = await run(tmp_path, [questions("math500", 2)], Cut())
    score = report.scores[0]
    assert (score.value, score.truncated, score.unparsed) == (0.5, 1.0, 0.5)


def test_long_answers_start_first_and_samples_stay_together() -> None:
    jobs = plan_jobs([questions("gsm8k", 3), questions("aime25", 2)], seed=0)
    assert [j.benchmark for j in jobs] == ["aime25"] * 64 + ["gsm8k"] * 3
    assert [j.question.id for j in jobs[:64:32]] == ["aime25-1", "aime25-0"]
    assert [j.sample for j in jobs[:32]] == list(range(32))
    assert len({j.seed for j in jobs}) == len(jobs)
    assert {j.sampled for j in jobs if j.benchmark == "gsm8k"} == {False}


def test_shards_share_out_the_questions() -> None:
    loaded = [questions("gsm8k", 10), questions("aime24", 5)]
    whole = {j.key for j in plan_jobs(loaded, 0)}
    parts = [{j.key for j in plan_jobs(loaded, 0, shard=(i, 3))} for i in range(3)]
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    assert len(plan_jobs(loaded, 0, limit=2)) == 2 + 2 * 32
    with pytest.raises(ValueError, match="no shard 3 of 3"):
        plan_jobs(loaded, 0, shard=(3, 3))


async def test_a_limited_report_is_partial(tmp_path: Path) -> None:
    report, _ = await run(tmp_path, [questions("math500", 9)], Scripted(lambda j: True), limit=2)
    assert report.partial
    assert report.as_json()["averages"]["math"]["complete"] is False
    assert report.scores[0].expected == 2


def test_a_folder_made_by_something_else_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path, {"model": "a"}).close()
    with pytest.raises(ValueError, match="evaluate into another folder"):
        Ledger(tmp_path, {"model": "b"})


def test_prompts_show_options_and_units_and_neither_key_nor_tests() -> None:
    templates = {name: template_path(name) for name in TEMPLATE_NAMES}
    with_tool, without = Asker(templates, 1024), Asker(templates, None)
    choice = Question("q", "Which?", "B", choices=("red", "blue"))
    text = with_tool.prompt(AnswerKind.CHOICE, choice)
    assert "(A) red\n(B) blue" in text
    assert "<python>" in text
    assert "1024 characters" in text
    assert "<python>" not in without.prompt(AnswerKind.CHOICE, choice)
    code = Question("h", "def f(x):\n", "    return 17", tests="assert f(1) == 17", entry_point="f")
    for asker in (with_tool, without):
        text = asker.prompt(AnswerKind.CODE, code)
        assert "17" not in text
        assert "{" not in text
    cloze = Question("q", "How much?", "5", unit="km")
    assert "(Unit of the answer: km)" in without.prompt(AnswerKind.CHOICE, cloze)
    assert "Final Answer: <answer>" in without.prompt(AnswerKind.CHOICE, cloze)
