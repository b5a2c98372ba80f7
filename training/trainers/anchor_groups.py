"""Anchor groups drawn anew from the frozen model (docs/method.md section 1)."""

from typing import Any

from training.config import Model, Rollout
from training.models import load_tokenizer
from training.rollout.tool_loop import Task
from training.seeds import derive_seed
from training.stages.base import StageContext
from training.trainers.backends import Sampler, open_backend
from training.trainers.common import InfraGuard, executor_sampling, prompt_book
from training.trainers.curriculum_records import group_line

Line = dict[str, Any]


async def sample_groups(ctx: StageContext, tasks: list[Line]) -> dict[str, Line]:
    """Labels and tool calls by task id; a task whose group stayed incomplete is left out."""
    ctx.input("anchor")  # read so that the result names the anchor it was computed with
    async with open_backend(ctx) as backend:
        return await draw_groups(ctx, tasks, await backend.frozen(ctx.input("frozen")))


async def draw_groups(ctx: StageContext, tasks: list[Line], sampler: Sampler) -> dict[str, Line]:
    """As `sample_groups`, from a sampler of the frozen model."""
    rollout, model = ctx.section(Rollout), ctx.section(Model)
    tokenizer = load_tokenizer(ctx.input("frozen") / "model", remote_code=model.remote_code)
    book = prompt_book(ctx, tokenizer)
    guard = InfraGuard(rollout.max_infra_share)
    groups: dict[str, Line] = {}
    batches = sorted({task["batch"] for task in tasks})
    for done, batch in enumerate(batches):
        ctx.progress(done, len(batches), "batches")
        part = [task for task in tasks if task["batch"] == batch]
        sampled = await sampler.rollout(
            [Task(task["id"], book.executor(task["problem"])) for task in part],
            rollout.group_size,
            executor_sampling(rollout),
            [derive_seed(ctx.seed, "anchor_cache", ctx.iteration, t["id"]) for t in part],
        )
        for task, group in zip(part, guard.complete(sampled), strict=True):
            if group is not None:
                groups[task["id"]] = group_line(group)
    ctx.progress(len(batches), len(batches), "batches")
    return groups
