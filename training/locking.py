"""The one kind of lock of this project: flock, which dies with the process that holds it."""

import fcntl


def try_exclusive(descriptor: int) -> bool:
    """Take an exclusive flock if it is free; whether it was."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
