"""Evaluation of one Executor: greedy pass@1 and sampled mean@k (docs/method.md section 7)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from training.algorithms.answers import canonical_label
from training.benchmarks.schema import Question
from training.config import Evaluation, Model, Rollout
from training.errors import ConfigError
from training.models import load_tokenizer
from training.questions import TINY, load_questions
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Trajectory
from training.seeds import derive_seed
from training.stages.base import StageContext, StageResult, read_jsonl, write_jsonl
from training.stages.benchmark_scores import score_benchmarks
from training.tiny_world.analysis import in_grammar_share, overlap
from training.trainers.backends import open_backend
from training.trainers.common import InfraGuard, executor_sampling, prompt_book

Groups = list[list[Trajectory] | None]
Numbers = dict[str, float | int | None]
Line = dict[str, Any]


def run(ctx: StageContext) -> StageResult:
    """Publish ``responses.jsonl``, every response with its verdict, and the scores.

    Numbers of the first benchmark stand under plain names, those of others under ``name.number``.
    """
    return StageResult(metrics=asyncio.run(_run(ctx)) | _pool_numbers(ctx))


async def _run(ctx: StageContext) -> Numbers:
    settings, rollout = ctx.section(Evaluation), ctx.section(Rollout)
    folder = ctx.input("executor")
    weights = ctx.section(Model)
    tokenizer = load_tokenizer(folder / "model", remote_code=weights.remote_code)
    book = prompt_book(ctx, tokenizer)
    guard = InfraGuard(rollout.max_infra_share)
    numbers: Numbers = {}
    lines: list[Line] = []
    async with open_backend(ctx) as backend:
        sampler = await backend.frozen(folder)
        for place, name in enumerate(settings.benchmarks):
            if name != TINY:
                continue
            questions = load_questions(name, ctx, settings.limit)
            tasks = [Task(q.id, book.executor(q.question)) for q in questions]
            for mode, size, sampling in _modes(settings, executor_sampling(rollout)):
                ctx.progress(place, len(settings.benchmarks), "benchmarks", f"{name}, {mode}")
                seeds = [derive_seed(ctx.seed, "evaluation", mode, name, t.id) for t in tasks]
                groups = guard.complete(await sampler.rollout(tasks, size, sampling, seeds))
                prefix = "" if place == 0 else f"{name}."
                scored = _score(mode, questions, groups)
                numbers |= {prefix + key: value for key, value in scored.items()}
                lines += _lines(name, mode, questions, groups)
        real = [name for name in settings.benchmarks if name != TINY]
        if real:
            plain = settings.benchmarks[0]
            numbers |= await score_benchmarks(ctx, real, plain, sampler, book.encode)
        numbers |= await backend.metrics()
    ctx.progress(len(settings.benchmarks), len(settings.benchmarks), "benchmarks")
    write_jsonl(ctx.payload / "responses.jsonl", lines)
    return numbers


def _modes(settings: Evaluation, base: Sampling) -> list[tuple[str, int, Sampling]]:
    """Greedy pass@1, and mean@k by sampling where k is not 0."""
    modes = [("greedy", 1, replace(base, temperature=0.0, top_p=1.0))]
    if settings.samples:
        sampled = replace(base, temperature=settings.temperature, top_p=settings.top_p)
        modes.append((f"mean_at_{settings.samples}", settings.samples, sampled))
    return modes


def is_correct(question: Question, trajectory: Trajectory) -> bool:
    """Whether a trajectory's one label is that of the key; invalid and missing ones are wrong."""
    return trajectory.label is not None and trajectory.label == canonical_label(question.answer)


def _score(mode: str, questions: Sequence[Question], groups: Groups) -> Numbers:
    """The score, and how the responses look: shares over responses, as fractions."""
    kept = [(q, group) for q, group in zip(questions, groups, strict=True) if group is not None]
    responses = [t for _, group in kept for t in group]
    score = fmean(fmean(is_correct(q, t) for t in group) for q, group in kept)
    numbers: Numbers = {mode: score}
    if mode == "greedy":
        labels = Counter(t.label for t in responses if t.label is not None)
        return numbers | {
            "questions": len(kept),
            "infra_dropped": len(groups) - len(kept),
            "top_answer_share": max(labels.values(), default=0) / len(responses),
        }
    return numbers | {
        "mean_tool_calls": fmean(t.n_tool for t in responses),
        "tool_use_share": fmean(t.n_tool > 0 for t in responses),
        "invalid_share": fmean(t.status is Status.INVALID for t in responses),
        "missing_share": fmean(t.status is Status.MISSING for t in responses),
    }


def _lines(name: str, mode: str, questions: Sequence[Question], groups: Groups) -> list[Line]:
    return [
        {
            "benchmark": name,
            "mode": mode,
            "id": question.id,
            "status": trajectory.status.value,
            "label": trajectory.label,
            "correct": is_correct(question, trajectory),
            "tool_calls": trajectory.n_tool,
            "seed": trajectory.seed,
            "text": trajectory.text,
        }
        for question, group in zip(questions, groups, strict=True)
        for trajectory in group or []
    ]


def _pool_numbers(ctx: StageContext) -> Numbers:
    """How the iteration's tasks relate to the questions: coincidences, and known problem kinds."""
    if not ctx.has_input("task_pool"):
        return {}
    settings = ctx.section(Evaluation)
    problems = [t["problem"] for t in read_jsonl(ctx.input("task_pool") / "tasks.jsonl")]
    held_out = set()
    for name in settings.benchmarks:
        with contextlib.suppress(ConfigError):  # one that is missing is reported by the scores
            held_out |= {q.question for q in load_questions(name, ctx, settings.limit)}
    numbers: Numbers = {"held_out_overlap": overlap(problems, held_out)}
    if TINY in settings.benchmarks and problems:
        numbers["in_grammar_share"] = in_grammar_share(problems)
    return numbers
