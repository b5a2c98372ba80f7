"""Run one stage: ``python -m training.stages NAME --spec spec.json --out DIR``.

Exit status 0 and a complete ``artifact/result.json`` mean done, 75 that another process computes
the stage, whose folder is left alone. Anything else leaves ``work/failure.json`` with the kind of
failure, one sentence, and the traceback beside it.
"""

import argparse
import importlib
import logging
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from training.errors import Interrupted, TakenError
from training.gpu_locks import gpus_of, holding_gpus
from training.spec import StageSpec
from training.stages.base import StageContext, StageResult
from training.stages.failure import STATUS_TAKEN, record_failure
from training.store import Store

STAGES = (
    "base_model",
    "anchor",
    "curriculum",
    "task_pool",
    "anchor_cache",
    "executor",
    "evaluation",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the stage named on the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.stages", description=__doc__)
    parser.add_argument("name", choices=STAGES)
    parser.add_argument("--spec", type=Path, required=True, help="what to compute (spec.json)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the stage's identity")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    spec = StageSpec.load(given.spec)
    store = Store(given.out.parent)
    place = store.place(spec.identity)
    if spec.stage != given.name or place.root != given.out.resolve():
        print(f"--spec describes {spec.stage} {spec.identity}, not {given.out}", file=sys.stderr)
        return 2
    try:
        with store.hold(spec.identity) as attempt:
            if store.verify(spec.identity) is not None:
                return 0  # computed by another run while this one waited
            _start_log(place.work / "logs" / f"attempt_{attempt}")
            place.failure.unlink(missing_ok=True)
            with holding_gpus(gpus_of(spec)):
                run_stage(spec, store, attempt)
    except TakenError as error:
        print(error, file=sys.stderr)
        return STATUS_TAKEN
    except (Exception, KeyboardInterrupt, MemoryError) as error:
        return record_failure(place.work, error)
    return 0


def run_stage(spec: StageSpec, store: Store, attempt: int) -> None:
    """Run one attempt and publish its artifact."""
    place = store.place(spec.identity)
    shutil.rmtree(place.payload, ignore_errors=True)
    place.payload.mkdir(parents=True)
    started = time.monotonic()
    context = StageContext(spec, store, attempt)
    module = importlib.import_module(f"training.stages.{spec.stage}")
    result: StageResult = module.run(context)
    if result.final_step != result.planned_steps:
        raise RuntimeError(
            f"{spec.stage} ended at step {result.final_step} of {result.planned_steps}"
        )
    seconds = time.monotonic() - started + _earlier_seconds(place.work)
    store.publish(
        spec.identity,
        attempt,
        {
            "stage": spec.stage,
            "iteration": spec.iteration,
            "metrics": result.metrics,
            "details": result.details,
            "steps": result.final_step,
            "seconds": seconds,
            "attempt": attempt,
            "inputs": context.inputs_used,
        },
    )


def _earlier_seconds(work: Path) -> float:
    """Seconds that earlier attempts spent (the last time stamp each left in its log folder)."""
    total = 0.0
    for folder in sorted((work / "logs").glob("attempt_*"))[:-1]:
        stamps = [path.stat().st_mtime for path in folder.iterdir()]
        started = folder.joinpath("started")
        if stamps and started.exists():
            # a clock that was set back meanwhile must not take away what others spent
            total += max(0.0, max(stamps) - float(started.read_text(encoding="utf-8")))
    return total


def _start_log(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "started").write_text(repr(time.time()), encoding="utf-8")
    logging.basicConfig(
        filename=folder / "stage.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted("the stage was asked to stop; it resumes from its last checkpoint")


if __name__ == "__main__":
    sys.exit(main())
