"""Compute stages again on purpose: what they published and their checkpoints are set aside.

On CPU a stage that is computed again makes the same bytes, and the stages behind it are still
good. On GPUs it may not, and stages computed from other bytes are computed again too.
"""

import json

from tasks.runs import Run, RunError, read_lines
from training.plan import PlanEntry
from training.store import append_line


def start_again(run: Run, from_stage: str | None, force_stage: str | None, asked_by: str) -> None:
    """Set aside every stage from ``from_stage`` on, and ``force_stage`` alone (like i2/executor).

    Happens once for each ``asked_by``, the id of a flow run, so that a retry of it does not throw
    away what it made itself. Raises RunError for a stage that the run does not have, InfraError
    for one that somebody computes right now.
    """
    entries = _chosen(run, from_stage, force_stage)
    noted = run.folder / "restarts.jsonl"
    if not entries or any(line["asked_by"] == asked_by for line in read_lines(noted)):
        return
    for entry in entries:
        run.store.start_again(entry.identity)
    line = {"asked_by": asked_by, "stages": [entry.name for entry in entries]}
    with noted.open("ab", buffering=0) as file:
        append_line(file, json.dumps(line).encode() + b"\n")


def _chosen(run: Run, from_stage: str | None, force_stage: str | None) -> list[PlanEntry]:
    chosen = [_named(run, force_stage)] if force_stage else []
    if from_stage:
        behind = run.entries[run.entries.index(_named(run, from_stage)) :]
        chosen += [entry for entry in behind if entry not in chosen]
    return chosen


def _named(run: Run, name: str) -> PlanEntry:
    known = {entry.name: entry for entry in run.entries}
    if name not in known:
        raise RunError(f"run '{run.name}' has no stage '{name}'; choose from {', '.join(known)}")
    return known[name]
