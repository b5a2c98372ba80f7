"""Delete what was listed. A kill at any moment leaves nothing that the next call would not finish.

A file first leaves the artifact on paper (``Store.retire``), then moves to a folder of trash in one
rename, and is deleted there; what is found in the trash is deleted again.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import uuid
from pathlib import Path

from tasks.leftovers import TRASH, TRASH_PREFIX, ownerless
from tasks.retention import Deletion
from training.store import Store, write_atomic

SAMPLE = 200
"""Tasks of a pool that stay."""
_TEXTS = ("text", "problem", "answer")


def delete(store: Store, deletion: Deletion) -> bool:
    """Do one deletion of files; False where somebody holds the lock or it is no longer due."""
    path = deletion.path
    if path is None:
        raise ValueError(f"{deletion.what} is no file")
    if deletion.kind == "temporary":
        return _delete_temporary(path)
    if deletion.identity is None:
        _discard(store, path)
        return True
    with store.exclusive(deletion.identity) as free:
        if not free:
            return False
        if deletion.retires:
            return _retire(store, deletion.identity, deletion)
        if deletion.kind == "checkpoints" and store.verify(deletion.identity) is None:
            return False
        _discard(store, path)
    return True


def _retire(store: Store, identity: str, deletion: Deletion) -> bool:
    artifact = store.place(identity).artifact
    if store.verify(identity) is None:
        return False  # a damaged artifact is evidence; the next run deals with it
    if deletion.kind == "raw":
        _condense(artifact)
    store.retire(identity, deletion.retires, deletion.reason)
    for name in deletion.retires:
        _discard(store, artifact / name)
    return True


def _condense(artifact: Path) -> None:
    """Keep the votes and rewards of all candidates, and a sample of the tasks."""
    candidates, tasks = artifact / "candidates.jsonl", artifact / "tasks.jsonl"
    if candidates.exists():
        lines = [json.loads(line) for line in candidates.read_text(encoding="utf-8").splitlines()]
        kept = [{k: v for k, v in line.items() if k not in _TEXTS} for line in lines]
        _write(artifact / "ledger.jsonl", [json.dumps(line, sort_keys=True) for line in kept])
    if tasks.exists():
        _write(artifact / "sample.jsonl", sample(tasks.read_text(encoding="utf-8").splitlines()))


def sample(lines: list[str], size: int = SAMPLE) -> list[str]:
    """At most ``size`` lines, evenly spaced over all, the first and the same ones each time."""
    if len(lines) <= size:
        return lines
    return [lines[i * len(lines) // size] for i in range(size)]


def _write(path: Path, lines: list[str]) -> None:
    write_atomic(path, "".join(line + "\n" for line in lines))


def _discard(store: Store, path: Path) -> None:
    """Move to the store's trash and delete there; a path that is gone is fine."""
    trash = store.root / TRASH
    if path.parent != trash:
        trash.mkdir(mode=0o700, exist_ok=True)
        try:
            path = path.rename(trash / uuid.uuid4().hex)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EXDEV:  # a run folder may be on another disk than the store
                raise
    _remove(path)


def _delete_temporary(path: Path) -> bool:
    if not path.name.startswith(TRASH_PREFIX):
        if not path.exists() or not ownerless(path):
            return False
        _end_sandbox(path)
        path = path.rename(path.with_name(TRASH_PREFIX + uuid.uuid4().hex))
    _remove(path)
    return True


def _end_sandbox(folder: Path) -> None:
    """End the bwrap that was given this folder, of which nobody holds the lock any more.

    It ends with the process that started it, but for a moment: killed just before its child is told
    its users, it leaves a child that waits for ever, and has run nothing.
    """
    given = f"{folder}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            ours = given in (process / "cmdline").read_bytes()
            if ours and (process / "comm").read_text() == "bwrap\n":
                os.kill(int(process.name), signal.SIGKILL)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
