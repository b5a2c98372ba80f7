"""Keep artifacts after a change of code that cannot alter their bytes.

A changed stage has a new identity, and so have all stages behind it, whose inputs it is. Adopting
it relabels the artifacts of both, and notes the old and new fingerprints and the reason.
"""

import json
import shutil
from typing import Any

from tasks.runs import Run, RunError, driving, spec_record
from training.plan import PlanEntry
from training.spec import StageSpec
from training.stages.__main__ import STAGES
from training.store import write_atomic

ALL = "all"


def adopt_stage(name: str, stage: str, reason: str) -> list[tuple[str, str, str]]:
    """Adopt a stage (or ``all``) in every iteration of a run: (entry, old, new identity) each.

    Only a change of code is adopted: RunError where anything else of the stage changed, or where
    there is no such stage or run. Stages that were never computed just take the new code.
    """
    if stage not in (*STAGES, ALL):
        raise RunError(f"there is no stage '{stage}'; choose from {', '.join(STAGES)} or all")
    with driving(name, announce=False) as run:
        path = run.folder / "plan.json"
        if not path.exists():
            raise RunError(f"run '{name}' never began; there is nothing to adopt")
        began = json.loads(path.read_text(encoding="utf-8"))
        adopted = []
        held_back: set[str] = set()
        for entry in run.entries:
            old = StageSpec(**began[entry.name])
            if not _may_adopt(entry, old, stage, held_back):
                held_back.add(entry.identity)
                continue
            if old.identity != entry.identity:
                if run.store.verify(old.identity) is not None:
                    _relabel(run, entry, old, reason)
                    adopted.append((entry.name, old.identity, entry.identity))
                began[entry.name] = spec_record(entry.spec)
        write_atomic(path, json.dumps(began, indent=1, sort_keys=True))
    return adopted


def _may_adopt(entry: PlanEntry, old: StageSpec, stage: str, held_back: set[str]) -> bool:
    mine = stage in (ALL, entry.spec.stage)
    kinds = ("config", "seed", "files", "libraries")
    was, now = spec_record(old), spec_record(entry.spec)
    other = [kind for kind in kinds if was[kind] != now[kind]]
    if mine and other:
        raise RunError(f"{entry.name} cannot be adopted: its {' and '.join(other)} changed too")
    same_code = old.code == entry.spec.code
    return not other and (mine or same_code) and held_back.isdisjoint(entry.spec.inputs.values())


def _relabel(run: Run, entry: PlanEntry, old: StageSpec, reason: str) -> None:
    if run.store.verify(entry.identity) is None:
        record: dict[str, Any] = {
            "reason": reason,
            "run": run.name,
            "code": {"old": old.code, "new": entry.spec.code},
        }
        run.store.adopt(old.identity, entry.identity, record)
    before, after = run.store.place(old.identity), run.store.place(entry.identity)
    entry.spec.save(after.spec)
    if (before.work / "metrics.jsonl").exists():
        after.work.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(before.work / "metrics.jsonl", after.work / "metrics.jsonl")
