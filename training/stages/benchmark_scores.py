"""The evaluation stage's work on real benchmarks: one stream of responses, graded beside it.

Responses are kept in the stage's work folder as they come, so that an attempt which was killed
repeats nothing; the payload gets them in the order of the benchmarks' files, which no timing moves.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from training.benchmarks.asking import TEMPLATE_NAMES, Asker
from training.benchmarks.evaluation import Report, evaluate, load_all
from training.benchmarks.grading import Grader
from training.benchmarks.loading import Loaded, Sources
from training.benchmarks.loop_generator import LoopGenerator, Sampler
from training.benchmarks.responses import Ledger
from training.benchmarks.runner import Job
from training.benchmarks.schema import AnswerKind
from training.benchmarks.verify_pool import GraderError
from training.config import Evaluation, Rollout, Trainer
from training.errors import ConfigError, InfraError
from training.prompts import template_path
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.settings import SandboxSettings
from training.stages.base import StageContext, write_jsonl
from training.trainers.common import executor_sampling

Numbers = dict[str, float | int | None]
_GRADERS = 2  # processes for symbolic comparison
_REQUESTS = 512  # in flight at a server, which makes its own batches of them


async def score_benchmarks(
    ctx: StageContext,
    names: Sequence[str],
    plain: str,
    sampler: Sampler,
    encode: Callable[[str], Sequence[int]],
) -> Numbers:
    """Evaluate on the benchmarks called `names`; publishes every response, and `scores.json`.

    Numbers of the benchmark called `plain` stand under plain names, others under ``name.number``.
    Raises ConfigError when none of them can be loaded, and InfraError when our machinery failed
    too often for a score.
    """
    files = {n: ctx.file(f"benchmark.{n}") for n in names if f"benchmark.{n}" in ctx.spec.paths}
    loaded, missing = load_all(names, Sources(files))
    if not loaded:
        raise ConfigError(
            f"{' '.join(missing.values())} Name a file with evaluation.files.NAME=PATH"
        )
    try:
        async with AsyncExitStack() as stack:
            sandbox = None
            if any(b.entry.kind is AnswerKind.CODE for b in loaded):
                sandbox = Sandbox(ctx.section(SandboxSettings))
                await stack.enter_async_context(sandbox)
            grader = await stack.enter_async_context(Grader(_GRADERS, sandbox))
            generator, concurrency = _generator(ctx, sampler, encode)
            report, jobs, ledger = await evaluate(
                loaded,
                missing,
                generator,
                grader,
                ctx.work / "benchmarks",
                made_by={"stage": ctx.spec.identity},
                seed=ctx.seed,
                concurrency=concurrency,
                limit=ctx.section(Evaluation).limit,
                progress=lambda done, total: ctx.progress(done, total, "responses"),
            )
    except (SandboxError, GraderError) as error:
        raise InfraError(str(error)) from error
    withheld = [f"{s.benchmark}: {s.withheld}" for s in report.scores if s.withheld]
    if withheld:
        raise InfraError(f"no score may be given ({'; '.join(withheld)}); retry the stage")
    write_jsonl(ctx.payload / "benchmark_responses.jsonl", response_lines(loaded, jobs, ledger))
    text = json.dumps(report.as_json(), indent=1, sort_keys=True)
    (ctx.payload / "scores.json").write_text(text + "\n", encoding="utf-8")
    return report_numbers(report, plain)


def report_numbers(report: Report, plain: str) -> Numbers:
    """The numbers of a report by metric name; shares are fractions, averages per cent."""
    numbers: Numbers = {}
    for score in report.scores:
        prefix = "" if score.benchmark == plain else f"{score.benchmark}."
        mode = "greedy" if score.metric == "pass@1" else score.metric.replace("@", "_at_")
        low, high = score.interval or (None, None)
        values: Numbers = {
            mode: score.value,
            "questions": score.n,
            "missing_responses": score.missing,
            "infra_dropped": score.infra,
            "unparsed_share": score.unparsed,
            "truncated_share": score.truncated,
            "undecided_share": score.undecided,
            "mean_tool_calls": score.tool_calls,
            "interval_low": low,
            "interval_high": high,
        }
        numbers |= {prefix + key: value for key, value in values.items()}
    numbers["missing_benchmarks"] = len(report.missing)
    for average in report.averages:
        if average.value is not None:
            numbers[f"{average.family}_avg"] = float(average.value)
            numbers[f"{average.family}_avg_complete"] = int(average.complete and not report.partial)
    return numbers


def response_lines(
    loaded: Sequence[Loaded], jobs: Sequence[Job], ledger: Ledger
) -> list[dict[str, Any]]:
    """Every response with its grade, by benchmark, question and sample in file order."""
    place = {
        (b.entry.name, q.id): (i, j)
        for i, b in enumerate(loaded)
        for j, q in enumerate(b.questions)
    }
    ordered = sorted(jobs, key=lambda job: (*place[job.benchmark, job.question.id], job.sample))
    lines = []
    for job in ordered:
        response, grade = ledger.responses[job.key], ledger.grades[job.key]
        lines.append(
            {
                "benchmark": job.benchmark,
                "id": job.question.id,
                "sample": job.sample,
                "seed": response.seed,
                "prediction": grade.prediction,
                "correct": grade.correct,
                "status": grade.status.value,
                "reason": grade.reason,
                "key_equal": grade.key_equal,
                "verify_equal": grade.verify_equal,
                "truncated": response.truncated,
                "tool_calls": response.tool_calls,
                "text": response.text,
            }
        )
    return lines


def _generator(
    ctx: StageContext, sampler: Sampler, encode: Callable[[str], Sequence[int]]
) -> tuple[LoopGenerator, int]:
    """The generator and how many jobs are in flight."""
    rollout, evaluation = ctx.section(Rollout), ctx.section(Evaluation)
    templates = {
        name: ctx.file(f"template.{name}")
        if f"template.{name}" in ctx.spec.paths
        else template_path(name)
        for name in TEMPLATE_NAMES
    }
    asker = Asker(templates, rollout.max_code_chars if rollout.tool else None)
    base = executor_sampling(rollout)
    embedded = ctx.section(Trainer).backend == "torch"
    generator = LoopGenerator(
        sampler,
        lambda job: encode(asker.prompt(job.kind, job.question)),
        replace(base, temperature=evaluation.temperature, top_p=evaluation.top_p),
        rollout.max_context_tokens,
        batch=2 * rollout.wave_rows if embedded else None,
    )
    return generator, 4 * rollout.wave_rows if embedded else _REQUESTS
