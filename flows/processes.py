"""Processes, sessions, ports and locks of this machine, as the services need them."""

import contextlib
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone (or a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def answers(url: str) -> bool:
    """Whether a GET of the address gives status 200 within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def end_session(leader: int, patience_s: float) -> None:
    """SIGTERM, then SIGKILL after ``patience_s``, to a leader's session until it is empty."""
    deadline = time.monotonic() + patience_s
    number = signal.SIGTERM
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
        while members(leader):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(leader, os.WNOHANG)
            if time.monotonic() > deadline and number != signal.SIGKILL:
                number = signal.SIGKILL
                os.killpg(leader, number)
            time.sleep(0.05)


def members(session: int) -> list[int]:
    """Live processes of a session, whatever process group they moved to."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def port_is_free(port: int) -> bool:
    """Whether a loopback port can be bound."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A loopback port that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
