"""Run a server for as long as somebody uses it: ``python guard.py USERS KEEP COMMAND…``.

Everyone who uses the server holds a shared lock on the file USERS. When nobody does, and the file
KEEP (made by ``anchorloop up``) is absent, the server is ended. So a driver killed with -9 leaves
no server behind, and of two runs at once the first to finish leaves the other its server.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

POLL_S = 1.0
GRACE_S = 60.0
"""A server that is just making its database must not be cut off in the middle."""


def main() -> int:
    """Start COMMAND and guard it; returns its exit status."""
    users, keep, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    leash = Path(__file__).resolve().parents[1] / "tasks" / "leash.py"
    process = subprocess.Popen([sys.executable, str(leash), str(os.getpid()), *command])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    with users.open("a") as handle:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
            if not keep.exists() and _nobody(handle.fileno()):
                end(process)  # holding the lock: a newcomer waits, then starts a server of its own
    return process.returncode


def _nobody(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the server to end, and after a while end it by force."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    if process.poll() is None:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
