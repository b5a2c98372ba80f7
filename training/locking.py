"""The one kind of lock of this project: flock, which dies with the process that holds it."""

import fcntl
import time

_PAUSES_S = (0.0, 0.01, 0.04)


def try_exclusive(descriptor: int) -> bool:
    """Take an exclusive flock if it is free; whether it was.

    Whoever looks with `is_held` has the lock for an instant, so a taken one is asked for again.
    """
    for pause in _PAUSES_S:
        time.sleep(pause)
        if _try(descriptor, fcntl.LOCK_EX):
            return True
    return False


def is_held(descriptor: int) -> bool:
    """Whether somebody else holds the flock exclusively. Many may look at once."""
    if not _try(descriptor, fcntl.LOCK_SH):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
