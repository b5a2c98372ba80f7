"""What processes that ended badly left in the store and in the temporary folder.

Nothing here is removed, only listed. What somebody holds the lock of is left out.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

from tasks.census import bytes_under
from tasks.retention import Deletion, Kind
from training.locking import is_held
from training.spec import StageSpec
from training.store import Place, Store

TRASH = ".trash"
"""Folder of the store where things are moved before they are deleted."""
TRASH_PREFIX = "anchorloop-trash-"
TEMPORARY_PREFIXES = ("anchorloop-box-", "anchorloop-unsafe-", TRASH_PREFIX)
"""Folders that the sandbox's client and its supervisor make, and what is being deleted of them."""

TORN_S = 3600.0
"""A file that is being written is younger than this."""
_WORK_STAYS = {"metrics.jsonl", "progress.json", "failure.json", "failure.traceback.txt", "logs"}
"""What of a published stage's work is its record."""


def identities(store: Store) -> list[str]:
    """All identities that have a folder in the store."""
    return sorted(p.name for p in store.root.iterdir() if len(p.name) == 64 and p.is_dir())


def checkpoints(store: Store) -> Iterator[Deletion]:
    """Checkpoints and scratch files of stages whose artifact verifies."""
    for identity in identities(store):
        place = store.place(identity)
        if not place.work.is_dir():
            continue
        spare = [path for path in sorted(place.work.iterdir()) if path.name not in _WORK_STAYS]
        if not spare or store.holder(identity) is not None or store.verify(identity) is None:
            continue
        for path in spare:
            yield _in_place("checkpoints", path, "its stage is published", place)


def damaged(store: Store, days: float) -> Iterator[Deletion]:
    """Artifacts and work folders that were set aside at least so many days ago."""
    for identity in identities(store):
        place = store.place(identity)
        for path in sorted(place.root.glob("*.aside-*")):
            age = (time.time() - path.lstat().st_ctime) / 86400
            if age >= days:
                yield _in_place("damaged", path, f"set aside {age:.0f} days ago", place)


def torn(store: Store, runs: list[Path]) -> Iterator[Deletion]:
    """Half-written files of the store and the run folders, and deletions that were cut short."""
    trash = store.root / TRASH
    for path in sorted(trash.iterdir()) if trash.is_dir() else []:
        yield _deletion("torn", path, "a deletion was cut short")
    why = "a process was killed while it wrote"
    for identity in identities(store):
        place = store.place(identity)
        if store.holder(identity) is None:
            yield from (_in_place("torn", path, why, place) for path in _torn_in(place))
    for run in runs:
        for folder in (run, run / "tracking"):
            for path in [*folder.glob(".*.[0-9]*"), *folder.glob("*.new")]:
                if _old(path):
                    yield _deletion("torn", path, why)


def _torn_in(place: Place) -> Iterator[Path]:
    folders = [place.root, place.work, place.artifact]
    for folder in folders:
        patterns = [".*.[0-9]*", *(["*.new"] if folder == place.work else [])]
        yield from (p for pattern in patterns for p in sorted(folder.glob(pattern)) if _old(p))
    unfinished = [place.root / "artifact.adopting", *place.work.glob("checkpoints/*.partial")]
    yield from (path for path in sorted(unfinished) if _old(path))


def unclaimed(store: Store, claimed: Set[str]) -> Iterator[Deletion]:
    """Artifacts and work of stages that no run names; base models, which runs share, stay."""
    for identity in identities(store):
        place = store.place(identity)
        if identity in claimed or _is_base(place) or store.holder(identity) is not None:
            continue
        for path in (place.artifact, place.work):
            if path.exists():
                yield _in_place("unclaimed", path, "no run names it", place)


def _is_base(place: Place) -> bool:
    try:
        return StageSpec.load(place.spec).stage == "base_model"
    except (OSError, ValueError, TypeError):
        return False


def temporary() -> Iterator[Deletion]:
    """Our folders in the temporary folder whose owner, who holds a lock on it, is gone."""
    for parent in sorted({Path(tempfile.gettempdir()), Path("/tmp")}):
        for path in sorted(p for name in TEMPORARY_PREFIXES for p in parent.glob(name + "*")):
            with contextlib.suppress(OSError):
                cut_short = path.name.startswith(TRASH_PREFIX)
                mine = path.lstat().st_uid == os.getuid() and path.is_dir()
                if mine and not path.is_symlink() and (cut_short or ownerless(path)):
                    yield _deletion("temporary", path, "its owner is gone")


def ownerless(folder: Path) -> bool:
    """Whether nobody holds the lock of a temporary folder that is old enough to have had one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return not is_held(descriptor) and _old(folder)
    finally:
        os.close(descriptor)


def _old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > TORN_S
    except FileNotFoundError:
        return False


def _deletion(kind: Kind, path: Path, reason: str) -> Deletion:
    return Deletion(kind, str(path), bytes_under(path), reason, path)


def _in_place(kind: Kind, path: Path, reason: str, place: Place) -> Deletion:
    """Something of one stage, by the stage's name where that is known."""
    identity = place.root.name
    try:
        spec = StageSpec.load(place.spec)
        stage = f"i{spec.iteration}/{spec.stage} ({identity[:12]})"
    except (OSError, ValueError, TypeError):
        stage = identity[:12]
    what = f"{path.relative_to(place.root)} of {stage}"
    return Deletion(kind, what, bytes_under(path), reason, path, identity)
