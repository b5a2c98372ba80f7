"""The anchor cache: one group of G anchor labels a task and batch (docs/method.md section 1)."""

import asyncio
from typing import Any

from training.config import Anchor, Rollout
from training.errors import InfraError
from training.stages.base import StageContext, StageResult, read_jsonl, write_jsonl
from training.stages.task_pool import task_id

Line = dict[str, Any]


def run(ctx: StageContext) -> StageResult:
    """Publish ``anchors.jsonl``: task, batch, the G labels, the G numbers of tool calls.

    Source ``curriculum`` keeps the groups that the Curriculum stage sampled from the same frozen
    model; ``resample`` draws a new one a task. A task whose group could not be completed has none.
    """
    tasks = read_jsonl(ctx.input("task_pool") / "tasks.jsonl")
    size = ctx.section(Rollout).group_size
    kept = ctx.section(Anchor).cache == "curriculum"
    groups = _kept_groups(ctx) if kept else _new_groups(ctx, tasks)
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


def _new_groups(ctx: StageContext, tasks: list[Line]) -> dict[str, Line]:
    from training.trainers.anchor_groups import sample_groups  # loads the engine

    return asyncio.run(sample_groups(ctx, tasks))
