"""The anchor cache: one group of G anchor labels a task and batch (docs/method.md section 1)."""

import asyncio
from typing import Any

from training.config import Anchor, Model, Rollout
from training.errors import InfraError
from training.models import load_tokenizer
from training.rollout.tool_loop import Task
from training.seeds import derive_seed
from training.stages.base import StageContext, StageResult, read_jsonl, write_jsonl
from training.stages.task_pool import task_id
from training.trainers.backends import open_backend
from training.trainers.torch.curriculum_records import group_line
from training.trainers.torch.setup import InfraGuard, executor_sampling, prompt_book

Line = dict[str, Any]


def run(ctx: StageContext) -> StageResult:
    """Publish ``anchors.jsonl``: task, batch, the G labels, the G numbers of tool calls.

    Source ``curriculum`` keeps the groups that the Curriculum stage sampled from the same frozen
    model; ``resample`` draws a new one a task. A task whose group could not be completed has none.
    """
    tasks = read_jsonl(ctx.input("task_pool") / "tasks.jsonl")
    size = ctx.section(Rollout).group_size
    kept = ctx.section(Anchor).cache == "curriculum"
    groups = _kept_groups(ctx) if kept else asyncio.run(_new_groups(ctx, tasks))
    lines: list[Line] = []
    for task in tasks:
        group = groups.get(task["id"])
        if group is None:
            continue
        if len(group["labels"]) != size:
            raise InfraError(
                f"the anchor group of {task['id']} has {len(group['labels'])} of {size} members"
            )
        lines.append({"task": task["id"], "batch": task["batch"], **group})
    write_jsonl(ctx.payload / "anchors.jsonl", lines)
    return StageResult(
        metrics={
            "groups": len(lines),
            "incomplete_groups": len(tasks) - len(lines),
            "sampled_trajectories": 0 if kept else size * len(tasks),
        }
    )


def _kept_groups(ctx: StageContext) -> dict[str, Line]:
    return {
        task_id(line["step"], line["index"]): {
            "labels": line["labels"],
            "tool_calls": line["tool_calls"],
        }
        for line in read_jsonl(ctx.input("curriculum") / "anchor_groups.jsonl")
    }


async def _new_groups(ctx: StageContext, tasks: list[Line]) -> dict[str, Line]:
    rollout = ctx.section(Rollout)
    ctx.input("anchor")
    folder = ctx.input("frozen")
    weights = ctx.section(Model)
    tokenizer = load_tokenizer(folder / "model", remote_code=weights.remote_code)
    book = prompt_book(ctx, tokenizer)
    guard = InfraGuard(rollout.max_infra_share)
    groups: dict[str, Line] = {}
    async with open_backend(ctx) as backend:
        sampler = await backend.frozen(folder)
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
