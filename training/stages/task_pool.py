"""The task pool: every format-valid task of the Curriculum stage (docs/method.md section 1)."""

import json

from training.stages.base import StageContext, StageResult, read_jsonl, write_jsonl
from training.store import write_atomic


def run(ctx: StageContext) -> StageResult:
    """Publish ``tasks.jsonl`` (id, batch, problem) and ``pool.json`` (number of batches).

    No filter, no tasks of earlier iterations; duplicates stay and short batches stay short.
    """
    source = ctx.input("curriculum")
    candidates = read_jsonl(source / "candidates.jsonl")
    tasks = [
        {"id": task_id(c["step"], c["index"]), "batch": c["step"], "problem": c["problem"]}
        for c in candidates
        if c["r_fmt"] == 1
    ]
    batches = json.loads((source / "result.json").read_text(encoding="utf-8"))["steps"]
    write_jsonl(ctx.payload / "tasks.jsonl", tasks)
    write_atomic(ctx.payload / "pool.json", json.dumps({"batches": batches, "tasks": len(tasks)}))
    distinct = len({task["problem"] for task in tasks})
    return StageResult(
        metrics={
            "tasks": len(tasks),
            "format_valid_share": len(tasks) / len(candidates) if candidates else None,
            "distinct_task_share": distinct / len(tasks) if tasks else None,
        }
    )


def task_id(batch: int, index: int) -> str:
    """Stable name of a task within its pool: batch and place in the batch."""
    return f"b{batch}-{index}"
