"""Stages whose science is a few lines; the contract, the store and the process are the real ones.

Run like ``python -m training.stages``. ``STUB_LOG`` names a file that gets a line for each start
of a stage; ``STUB_FAIL`` is ``<stage>:<iteration>:<kind>``, failing once or (kind with ``!``)
always; ``STUB_SALT`` alters the bytes of every artifact; ``STUB_METRICS`` holds
further metrics of each step, JSON by stage;
``STUB_STEP_S`` is how long a step takes; with ``STUB_HOLD``, a path, step N is held until the file
``<path>-N`` is there; both of all stages, or of the one in ``STUB_SLOW``.
"""

import json
import os
import sys
import time
import types
from pathlib import Path

from training.errors import ConfigError, DiskFullError, InfraError, NumericError, OutOfMemoryError
from training.stages import __main__ as program
from training.stages.base import StageContext, StageResult

STEPS = 4
METRICS = {
    "base_model": {"loss": 1.0},
    "anchor": {"frozen_bytes": 10},
    "curriculum": {"positive_gap_share": 0.25, "format_valid_share": 0.75},
    "task_pool": {"tasks": 12, "distinct_task_share": 0.5},
    "anchor_cache": {"groups": 12},
    "executor": {"v_adv": 0.125, "unresolved_share": 0.1},
}
WEIGHTS = "model/weights.bin"
FILES = {
    "base_model": [WEIGHTS],
    "curriculum": [WEIGHTS, "candidates.jsonl", "anchor_groups.jsonl"],
    "task_pool": ["tasks.jsonl"],
    "executor": [WEIGHTS],
}
"""What the real stages publish, as far as it may be retired."""
ERRORS = {
    "infra": InfraError("the stub's disk went away"),
    "disk_full": DiskFullError("the stub's disk is full"),
    "config": ConfigError("the stub was asked for nonsense"),
    "numeric": NumericError("the stub's loss became nan"),
    "out_of_memory": OutOfMemoryError("the stub's memory ran out"),
    "bug": RuntimeError("the stub is broken"),
}


def run(ctx: StageContext) -> StageResult:
    """Four steps with metrics, progress and a checkpoint each, and one small file as payload."""
    spec = ctx.spec
    me = f"{spec.stage}:{spec.iteration}"
    checkpoint = ctx.work / "checkpoint.json"
    first = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
    _note(f"{me} from {first}")
    known = [(ctx.input(name) / "payload.txt").read_text() for name in sorted(spec.inputs)]
    ctx.resume_metrics(first)
    further = json.loads(os.environ.get("STUB_METRICS", "{}")).get(spec.stage, {})
    for step in range(first, STEPS):
        ctx.progress(step, STEPS)
        if os.environ.get("STUB_SLOW", spec.stage) == spec.stage:
            _held(step)
            time.sleep(float(os.environ.get("STUB_STEP_S", "0")))
        ctx.log_metrics(step, {"loss": 1.0 / (step + 1), "kl": 0.5, "not_listed": 7.0, **further})
        checkpoint.write_text(json.dumps(step + 1))
        if step == 1:
            _fail(ctx.work, me)
    ctx.progress(STEPS, STEPS)
    salt = os.environ.get("STUB_SALT", "")
    (ctx.payload / "payload.txt").write_text(f"{me} {spec.seed} of {sorted(known)}{salt}\n")
    for name in FILES.get(spec.stage, []):
        path = ctx.payload / name
        path.parent.mkdir(exist_ok=True)
        lines = [{"step": 0, "index": i, "text": "t" * 50, "r_c": 0.5} for i in range(300)]
        path.write_text("".join(json.dumps({**line, "of": me}) + "\n" for line in lines))
    metrics = METRICS.get(spec.stage) or {
        "greedy": 0.375 + 0.125 * spec.iteration,
        "mean_at_8": 0.25 + 0.125 * spec.iteration,
        "mean_tool_calls": 0.5,
        "top_answer_share": 0.0625,
        "in_grammar_share": 0.875 if spec.iteration else None,
    }
    return StageResult(metrics=metrics, planned_steps=STEPS, final_step=STEPS)


def _note(line: str) -> None:
    with Path(os.environ["STUB_LOG"]).open("a") as log:
        log.write(line + "\n")


def _held(step: int) -> None:
    hold, deadline = os.environ.get("STUB_HOLD"), time.monotonic() + 300
    while hold and not Path(f"{hold}-{step}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{hold}-{step} was never made")
        time.sleep(0.02)


def _fail(work: Path, me: str) -> None:
    wanted = os.environ.get("STUB_FAIL", "")
    if not wanted.startswith(f"{me}:"):
        return
    kind = wanted.split(":")[2]
    if not kind.endswith("!"):
        if (work / "failed").exists():
            return
        (work / "failed").touch()
    raise ERRORS[kind.rstrip("!")]


if __name__ == "__main__":
    for name in program.STAGES:
        module = types.ModuleType(f"training.stages.{name}")
        module.run = run  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
    sys.exit(program.main())
