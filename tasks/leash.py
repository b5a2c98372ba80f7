"""Run a command that dies with the process that started it: ``python leash.py PARENT COMMAND…``.

The kernel sends SIGKILL when the parent is gone (PR_SET_PDEATHSIG), and the setting survives the
exec below. A program of its own, because code between fork and exec is unsafe in a driver that
has threads. Only the standard library, so that it starts in milliseconds.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to PARENT and become COMMAND; exits 1 when PARENT is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
