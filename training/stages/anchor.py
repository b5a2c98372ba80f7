"""The anchor: a frozen Executor, named and never copied (docs/method.md section 1)."""

import json

from training.stages.base import StageContext, StageResult
from training.store import write_atomic


def run(ctx: StageContext) -> StageResult:
    """Publish ``anchor.json``: which Executor's weights are the reference of this iteration."""
    folder = ctx.input("executor")
    used = ctx.inputs_used["executor"]
    record = {"executor": used["identity"], "payload_sha256": used["payload_sha256"]}
    write_atomic(ctx.payload / "anchor.json", json.dumps(record, sort_keys=True))
    frozen_bytes = sum(p.stat().st_size for p in (folder / "model").rglob("*") if p.is_file())
    return StageResult(metrics={"frozen_bytes": frozen_bytes})
