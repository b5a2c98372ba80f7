"""Emptying a folder that hostile code has written: any depth, any mode, no recursion."""

from __future__ import annotations

import contextlib
import os
import stat


def wipe(folder: str) -> None:
    """Remove everything in `folder`, which itself stays.

    Links are removed and never followed. A nested folder is moved up to the top before it is
    emptied, so that neither its depth nor the length of its path matters. Nothing of the code
    that wrote the files may still run. Raises OSError when something cannot be removed.
    """
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    moved = 0
    try:
        while names := os.listdir(top):
            for name in names:
                if _unlink(name, top):
                    continue
                os.chmod(name, 0o700, dir_fd=top)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for deeper in os.listdir(inner):
                        if _unlink(deeper, inner):
                            continue
                        # Moving a folder rewrites its "..", which needs write permission on it.
                        os.chmod(deeper, 0o700, dir_fd=inner)
                        moved = _move_up(deeper, inner, top, moved)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _unlink(name: str, parent: int) -> bool:
    """Remove `name` unless it is a folder; says whether it is gone."""
    if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        return False
    os.unlink(name, dir_fd=parent)
    return True


def _move_up(name: str, parent: int, top: int, moved: int) -> int:
    """Move a folder to the top under a name that is free there; returns the next number."""
    while True:
        target = f"moved-{moved}"
        moved += 1
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target, dir_fd=top)
            continue
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=top)
        return moved
