"""Checkpoints of the verl backend: whole folders, verified, two kept.

verl writes a folder of files; it counts once a manifest of their sizes and digests is beside them
and the folder has its name. An older one is deleted only after that.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from training.disk import need_room
from training.spec import file_digest
from training.store import write_atomic

log = logging.getLogger(__name__)

KEEP = 2
_MANIFEST = "manifest.json"


class FolderCheckpoints:
    """Folders `step_<n>` in one place."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Have `write` fill a folder, then make it the checkpoint of `step` finished steps.

        Raises `DiskFullError` before anything is written when the disk has no room for one more of
        the size of the last one.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._need_room()
        target, partial = self.root / f"step_{step}", self.root / f"step_{step}.partial"
        for leftover in (target, *self.root.glob("*.partial")):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        write(partial)
        paths = [path for path in sorted(partial.rglob("*")) if path.is_file()]
        files = {
            path.relative_to(partial).as_posix(): [path.stat().st_size, file_digest(path)]
            for path in paths
        }
        write_atomic(partial / _MANIFEST, json.dumps({"step": step, "files": files}))
        for path in (*paths, *(p for p in partial.rglob("*") if p.is_dir()), partial):
            _flush(path)
        partial.rename(target)
        _flush(self.root)
        for old in self.steps()[KEEP:]:
            shutil.rmtree(self.root / f"step_{old}")
        return target

    def steps(self) -> list[int]:
        """Steps of the checkpoints that exist, newest first, verified or not."""
        names = [path.name.removeprefix("step_") for path in self.root.glob("step_*")]
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def newest(self) -> tuple[int, Path] | None:
        """The newest checkpoint that verifies; damaged ones are passed over with a warning."""
        for step in self.steps():
            place = self.root / f"step_{step}"
            try:
                _verify(place)
            except (OSError, ValueError, KeyError) as error:
                log.warning("checkpoint %s is damaged and not used: %s", place.name, error)
                continue
            return step, place
        return None

    def _need_room(self) -> None:
        steps = self.steps()
        if not steps:
            return
        last = self.root / f"step_{steps[0]}"
        size = sum(path.stat().st_size for path in last.rglob("*") if path.is_file())
        need_room(self.root, size, "a checkpoint")


def _flush(path: Path) -> None:
    """Put a file or the names in a folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _verify(place: Path) -> None:
    manifest = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
    for name, (size, digest) in manifest["files"].items():
        path = place / name
        if path.stat().st_size != size or file_digest(path) != digest:
            raise ValueError(f"{name} is not what was written")
