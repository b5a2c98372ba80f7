"""Why a stage failed, as ``failure.json`` says it: the kind, one sentence, and what helps."""

import contextlib
import json
import logging
import os
import shutil
import traceback
from pathlib import Path

from training.disk import REMEDY, is_full
from training.errors import DiskFullError, Interrupted, Kind, StageError
from training.store import write_atomic

log = logging.getLogger("training.stages")

STATUS, STATUS_DISK_FULL, STATUS_TAKEN = 1, 28, 75
"""Exit statuses; the second speaks for a failure.json that a full disk does not take, the third for
a stage that another process computes, whose folder is not ours to write in."""

MEMORY_ADVICE = (
    "Trying again does not help: take a smaller optimiser.micro_batch_rows (training) or "
    "rollout.wave_rows (sampling), a shorter rollout.max_context_tokens or fewer sandbox.workers, "
    "or a larger machine"
)
_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory"


def classify(error: BaseException) -> Kind:
    """The kind of failure an exception stands for."""
    if isinstance(error, StageError):
        return error.kind
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if isinstance(error, RuntimeError) and _ALLOCATOR in str(error):
        return "out_of_memory"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) or is_full(error):
        return "infra"
    return "bug"


def record_failure(work: Path, error: BaseException) -> int:
    """Leave ``failure.json`` and the traceback in ``work``; returns the exit status."""
    kind, full = classify(error), is_full(error)
    message = str(error) or type(error).__name__
    if not isinstance(error, StageError | Interrupted):
        message = f"{type(error).__name__}: {message}"
        message = f"the disk is full ({message}); {REMEDY}" if full else message
    if kind == "out_of_memory":
        message = f"{message.rstrip('.')}. {MEMORY_ADVICE}"
    log.error("%s: %s", kind, message)
    _say(f"{kind}: {message}\n")
    if full:  # what the next attempt makes anew has to give way to the reason of this one
        for unfinished in (work / "payload", *work.glob("checkpoints/*.partial")):
            shutil.rmtree(unfinished, ignore_errors=True)
    trace, story = work / "failure.traceback.txt", "".join(traceback.format_exception(error))
    failure = {
        "kind": kind,
        "message": message,
        "again": getattr(error, "again", not full),
        "traceback_file": trace.name,
    }
    try:
        write_atomic(work / "failure.json", json.dumps(failure))
        write_atomic(trace, story)
    except DiskFullError:  # no room even for that
        _say(story)
        return STATUS_DISK_FULL
    return STATUS


def _say(text: str) -> None:
    """To the stage's output, unbuffered: it may lie on the full disk itself."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
