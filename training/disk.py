"""Room on the disk: asked before something large is written, and recognised when it has run out."""

import errno
import shutil
from pathlib import Path

from training.errors import DiskFullError

SPARE = 2.2
"""Free room wanted, in sizes of what is written: it and what replaces it, and some for the rest."""
_SAYINGS = ("no space left on device", "os error 28")
"""How libraries report a full disk that do not raise OSError."""

REMEDY = "`anchorloop clean` lists what may go; then retry, which goes on from the last checkpoint"


def need_room(folder: Path, size: int, what: str) -> None:
    """Raise DiskFullError unless ``folder`` has room for ``size`` bytes, and to spare."""
    free = shutil.disk_usage(folder).free
    if free < SPARE * size:
        raise DiskFullError(
            f"{what} takes {_gb(size)}, for which {_gb(SPARE * size)} should be free at {folder}, "
            f"and only {_gb(free)} are; {REMEDY}"
        )


def is_full(error: BaseException) -> bool:
    """Whether an exception, or one that it came from, says that the disk is full."""
    seen: BaseException | None = error
    while seen is not None:
        full = isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or any(saying in str(seen).lower() for saying in _SAYINGS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"
