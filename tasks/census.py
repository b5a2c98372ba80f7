"""Facts for retention: every run that uses a store, and what the store has of its plan."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from tasks.retention import RunFact, StageFact
from tasks.runs import RunError, read_lines, unreadable
from tasks.todo import must_run
from training.parts import Part, part_of
from training.spec import StageSpec
from training.store import Store


def run_folders(homes: list[Path]) -> Iterator[Path]:
    """Folders of all runs under these folders of runs, in order of names.

    Raises OSError for a folder that cannot be read or is not there.
    """
    for runs in homes:
        yield from sorted(path for path in runs.iterdir() if (path / "run.json").exists())


def read_plan(folder: Path) -> list[StageSpec]:
    """The plan that a run began with; empty before its first start.

    It is read, never made anew: the code may have changed since. Raises RunError.
    """
    path = folder / "plan.json"
    if not path.exists():
        return []
    try:
        return [StageSpec(**spec) for spec in json.loads(path.read_text(encoding="utf-8")).values()]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RunError(unreadable(folder, "plan.json", error)) from None


def claimed(folders: Iterable[Path], planned: Set[str], store: Store) -> set[str]:
    """Identities that are planned or that any run has computed, and all that they are made of."""
    todo = {*planned}
    for folder in folders:
        todo |= {line["identity"] for line in read_lines(folder / "stages.jsonl")}
        todo |= {spec.identity for spec in read_plan(folder)}
    found: set[str] = set()
    while todo:
        identity = todo.pop()
        found.add(identity)
        with contextlib.suppress(OSError, ValueError, TypeError):
            todo |= {*StageSpec.load(store.place(identity).spec).inputs.values()} - found
    return found


def run_fact(name: str, specs: list[StageSpec], store: Store) -> RunFact:
    """What the store has of a plan."""
    known = [(spec.identity, spec) for spec in specs]
    lacking = must_run(known, store.found)
    stages = [_stage_fact(i, spec, store, i in lacking) for i, spec in known]
    return RunFact(name, sorted(stages, key=lambda s: (s.iteration, s.stage)))


def _stage_fact(identity: str, spec: StageSpec, store: Store, lacking: bool) -> StageFact:
    manifest = store.verify(identity)
    files: dict[Part, dict[str, int]] = {}
    if manifest is not None:
        for name in manifest.files:
            part, path = part_of(name), store.place(identity).artifact / name
            if part is not None and path.exists():
                files.setdefault(part, {})[name] = share_of_bytes(path)
    score = None
    if manifest is not None and spec.stage == "evaluation":
        metrics = store.result(identity)["metrics"]
        means = [value for key, value in metrics.items() if key.startswith("mean_at_")]
        score = next((v for v in [*means, metrics.get("greedy")] if v is not None), None)
    return StageFact(
        identity=identity,
        stage=spec.stage,
        iteration=spec.iteration,
        inputs=spec.inputs,
        done=manifest is not None,
        must_run=lacking,
        files=files,
        score=score,
    )


def share_of_bytes(path: Path) -> int:
    """Bytes that are free once this file is gone; of adopted artifacts each name has its share."""
    stat = path.lstat()
    return stat.st_size // max(1, stat.st_nlink)


def bytes_under(path: Path) -> int:
    """The same of a file, or of all files in a folder."""
    if path.is_dir() and not path.is_symlink():
        return sum(share_of_bytes(p) for p in path.rglob("*") if p.is_symlink() or p.is_file())
    return share_of_bytes(path)
