"""Keep a machine tidy: list what ended processes left and what the store need not keep; then do it.

The list is made first and in full. Nothing is deleted that was not on it.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks import leftovers
from tasks.census import claimed, read_plan, run_fact, run_folders
from tasks.deletion import delete
from tasks.home import Home
from tasks.retention import (
    USUAL,
    Deletion,
    Kind,
    RunFact,
    kept_weights,
    retire_raw,
    retire_weights,
)
from tasks.runs import (
    RunBusy,
    RunError,
    RunSettings,
    driver,
    driving,
    read_lines,
    read_settings,
    stored_config,
)
from training.errors import ConfigError, StageError
from training.plan import plan
from training.spec import StageSpec
from training.store import Store

log = logging.getLogger("anchorloop")


@dataclass(frozen=True)
class Wanted:
    """What to look for."""

    kinds: Sequence[Kind] = USUAL
    spent_anchors: bool = False
    """Also the weights that only anchors of finished iterations name."""
    running_containers: bool = False
    """Also containers that still compute, though nobody drives their run."""
    damaged_days: float = 30.0
    """Age from which a damaged artifact that was set aside may go."""


@dataclass(frozen=True)
class Survey:
    """What was found: what may go, and what a person should know of the rest."""

    deletions: list[Deletion]
    notes: list[str]


@dataclass
class _Ground:
    """The runs and the store of one survey."""

    place: Home
    store: Store
    runs: list[tuple[Path, RunSettings]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: bool = False
    """Whether a run could not be read: it may need anything."""


def survey(place: Home, wanted: Wanted, full: bool = False) -> Survey:
    """List what may go, of every run that uses this store.

    ``full`` reads again every byte of the weights that stay, before those that they replace are
    listed: do so when the list will be carried out.
    """
    ground = _ground(place)
    found = [deletion for kind in wanted.kinds for deletion in _of(kind, ground, wanted, full)]
    if set(wanted.kinds) == set(USUAL):
        left = list(_of("unclaimed", ground, wanted, full))
        if left:
            size = sum(deletion.bytes for deletion in left) / 1e6
            ground.notes.append(
                f"{size:.1f} MB are of stages that no run names; see kind 'unclaimed'"
            )
    return Survey(found, list(dict.fromkeys(ground.notes)))


def _ground(place: Home) -> _Ground:
    ground = _Ground(place, Store(place.store))
    unread = [said for folder in place.sharing() for said in _read(folder, ground)]
    if unread:
        ground.unread = True
        unread.append(
            "weights, raw records, unclaimed stages and containers of unknown runs were not looked "
            "for: what cannot be read may need them"
        )
    ground.notes += unread
    return ground


def _read(folder: Path, ground: _Ground) -> Iterator[str]:
    """Take in the runs of a folder; says what could not be read."""
    try:
        for run in run_folders([folder]):
            try:
                read_plan(run)
                with contextlib.suppress(ConfigError):  # readable, if of no use any more
                    stored_config(run)
                ground.runs.append((run, read_settings(run)))
            except RunError as error:
                yield str(error)
    except OSError as error:
        yield (
            f"runs in {folder} use this store and cannot be read ({error}); mount it, or, if it is "
            f"gone for good, take its line out of {ground.place.store / 'users'}"
        )


def carry_out(place: Home, listed: Survey, tell: Callable[[Deletion, str], None]) -> int:
    """Do what was listed; returns the bytes freed. ``tell`` hears the outcome of each.

    What is in use by now is passed over, and one that fails does not keep the others from going.
    """
    store = Store(place.store)
    freed = 0
    for deletion in listed.deletions:
        try:
            done = _do(place, store, deletion)
        except (OSError, ValueError, RunError, StageError) as error:
            tell(deletion, f"failed: {error}")
            continue
        freed += deletion.bytes if done else 0
        tell(deletion, "done" if done else "in use; left alone")
    return freed


def _do(place: Home, store: Store, deletion: Deletion) -> bool:
    if deletion.kind == "unclaimed":  # a run may have begun since it was listed
        named = claimed(run_folders(place.sharing()), set(), store)
        return deletion.identity not in named and delete(store, deletion)
    if deletion.kind == "containers":
        from tasks.left_containers import remove_container

        remove_container(deletion.what)
        return True
    if deletion.kind == "tracking":
        try:
            with driving(deletion.what, announce=False, on_busy="refuse") as run:
                for part in unended(run.folder):
                    run.tracker.end(part, "KILLED")
        except RunBusy:  # whoever drives it by now ends its parts
            return False
        return True
    return delete(store, deletion)


def _of(kind: Kind, ground: _Ground, wanted: Wanted, full: bool) -> Iterator[Deletion]:
    store = ground.store
    if ground.unread and kind in ("weights", "raw", "unclaimed"):
        return
    if kind in ("weights", "raw"):
        facts = _facts(ground)
        if kind == "raw":
            yield from retire_raw(facts, _places(facts, store))
            return
        places, spent = _places(facts, store), wanted.spent_anchors
        if full and retire_weights(facts, places, spent):
            for identity in kept_weights(facts, spent):
                store.verify(identity, full=True)
            facts = _facts(ground)
        yield from retire_weights(facts, places, spent)
    elif kind == "checkpoints":
        yield from leftovers.checkpoints(store)
    elif kind == "damaged":
        yield from leftovers.damaged(store, wanted.damaged_days)
    elif kind == "torn":
        idle = [folder for folder, _ in ground.runs if driver(folder) is None]
        yield from leftovers.torn(store, idle)
    elif kind == "temporary":
        yield from leftovers.temporary()
    elif kind == "unclaimed":
        yield from _unclaimed(ground)
    elif kind == "containers":
        yield from _containers(ground, wanted)
    else:
        yield from _tracking(ground)


def _facts(ground: _Ground) -> list[RunFact]:
    facts = []
    for folder, settings in ground.runs:
        specs = [*read_plan(folder), *_in_work(folder, ground.store)]
        facts.append(run_fact(settings.name, specs, ground.store))
        if facts[-1].finished:
            continue
        try:  # what is left of it runs with the code as it is now
            now = [entry.spec for entry in plan(stored_config(folder))]
        except (OSError, ConfigError) as error:
            ground.notes.append(f"run '{settings.name}' cannot go on as it is: {error}")
            continue
        facts.append(run_fact(settings.name, now, ground.store))
    return facts


def _unclaimed(ground: _Ground) -> Iterator[Deletion]:
    """Nothing while what any run did cannot be read: its stages would seem to be nobody's."""
    try:
        planned = {stage.identity for fact in _facts(ground) for stage in fact.stages}
        named = claimed(run_folders(ground.place.sharing()), planned, ground.store)
    except (OSError, ValueError, TypeError, KeyError, RunError) as error:
        ground.notes.append(f"stages that no run names were not looked for: {error}")
        return
    yield from leftovers.unclaimed(ground.store, named)


def _in_work(folder: Path, store: Store) -> list[StageSpec]:
    """The stage at which a driven run is: an evaluation on demand is in no plan."""
    if driver(folder) is None:
        return []
    try:
        now = json.loads((folder / "current.json").read_text(encoding="utf-8"))
        return [StageSpec.load(store.place(now["identity"]).spec)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _places(facts: list[RunFact], store: Store) -> dict[str, Path]:
    known = {stage.identity for run in facts for stage in run.stages}
    return {identity: store.place(identity).artifact for identity in known}


def _tracking(ground: _Ground) -> Iterator[Deletion]:
    for folder, settings in ground.runs:
        if folder.parent != ground.place.runs or driver(folder) is not None:
            continue
        parts = unended(folder)
        if parts:
            reason = f"{', '.join(parts)} shown as running; nobody drives the run"
            yield Deletion("tracking", settings.name, 0, reason)


def unended(folder: Path) -> list[str]:
    """Parts of a run's tracking that were opened and not ended since."""
    last: dict[str, str] = {}
    for entry in read_lines(folder / "tracking" / "journal.jsonl"):
        if entry["op"] in ("open", "end"):
            last[entry["part"]] = entry["op"]
    return [part for part, op in last.items() if op == "open"]


def _containers(ground: _Ground, wanted: Wanted) -> Iterator[Deletion]:
    from tasks.left_containers import our_containers

    known = {settings.uid: folder for folder, settings in ground.runs}
    try:
        found = our_containers()
    except StageError as error:
        if any(settings.launcher == "docker" for _, settings in ground.runs):
            ground.notes.append(f"containers were not looked for: {error}")
        return
    for container in found:
        folder = known.get(container.run_id)
        if folder is None and (
            ground.unread or not container.place.is_relative_to(ground.store.root)
        ):
            continue  # of a run that cannot be read, or of another store: not ours to judge
        if folder is not None and driver(folder) is not None:
            continue
        if folder is None:
            reason = f"its run '{container.run}' is gone"
        elif not container.computes:
            reason = f"{container.stage} ended and nobody drives '{container.run}'"
        elif wanted.running_containers:
            reason = f"{container.stage} computes, but nobody drives '{container.run}'"
        else:
            ground.notes.append(
                f"container {container.name} computes {container.stage} of '{container.run}', "
                "which nobody drives; the next start of the run goes on with it"
            )
            continue
        yield Deletion("containers", container.name, 0, reason)
