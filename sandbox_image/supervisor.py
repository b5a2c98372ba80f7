"""The one program of the sandbox: dial the client, then run its calls one after the other.

Started as process 1 of a container or of a bubblewrap sandbox. It imports the scientific stack,
connects to the client's socket, gives up everything it may do, and serves until the client
closes the connection. It never listens, so nothing in the sandbox can reach it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import math
import os
import platform
import socket
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandbox_image import harden
from sandbox_image.call import Caller, ClientGone, Limits, Outcome
from sandbox_image.child import prepare_streams
from sandbox_image.processes import Processes, UnsafeProcesses
from sandbox_image.wire import WireError, pack, read_frame, unpack

SOCKET = "/run/sandbox/socket"
SCRATCH = "/scratch"
WRITABLE = ("/dev/mqueue",)
"""Folders that a container engine leaves open to everyone, besides the scratch folder."""
SERVED = 3
PATIENCE_S = 3600.0
"""How long a supervisor beside a stage waits for a client: longer than a stage takes to load."""
KEPT_VARIABLES = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"}
"""All that a program finds in its environment: constants of ours, nothing of the host's."""


def main(versions: dict[str, str]) -> int:
    """Serve one client; returns the exit status (0: the client closed the connection).

    With `--folder` the status after a client is 3, so that the engine starts a fresh supervisor
    for the next one, and 0 if no client came. `versions` are those of the preloaded libraries,
    for the greeting.
    """
    parser = argparse.ArgumentParser(prog="sandbox_image")
    parser.add_argument("--socket", default=SOCKET)
    parser.add_argument(
        "--folder", type=Path, help="dial whichever socket in it listens first, and wait for one"
    )
    parser.add_argument("--program-id", type=int, default=harden.PROGRAM_ID, help="their user")
    parser.add_argument("--unsafe", action="store_true", help="run without any isolation")
    options = parser.parse_args()

    source = source_hash()
    processes = UnsafeProcesses() if options.unsafe else Processes()
    connection = _dial(options.socket) if options.folder is None else _find(options.folder)
    if connection is None:
        return 0
    if options.unsafe:
        own_user, also_wiped = False, list[str]()
        folder = tempfile.mkdtemp(prefix="anchorloop-unsafe-")
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)  # in use while this process lives
    else:
        folder = SCRATCH
        harden.own_mounts(folder)
        own_user = harden.become_keeper(options.program_id)
        also_wiped = [place for place in WRITABLE if os.access(place, os.W_OK)]
    harden.seal(isolated=not options.unsafe)
    os.umask(0o077)
    for name in set(os.environ) - KEPT_VARIABLES:
        del os.environ[name]
    prepare_streams()
    caller = Caller(processes, own_user, folder, also_wiped)
    greeting = {"source": source, "python": platform.python_version(), "own_user": own_user}
    connection.sendall(pack(greeting | versions))
    try:
        status = serve(connection, caller)
        return status if options.folder is None else SERVED
    finally:
        if options.unsafe:
            os.rmdir(folder)


def _dial(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _find(folder: Path) -> socket.socket | None:
    """The first client that listens in the folder; None when none does for too long.

    Each client takes one connection, so supervisors that share a folder never meet.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for path in sorted(folder.glob("*/socket")):
            with contextlib.suppress(OSError):
                return _dial(str(path))
        time.sleep(0.1)
    return None


def source_hash() -> str:
    """A hash of this program's files, by which the client knows an image that is out of date."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def serve(connection: socket.socket, caller: Caller) -> int:
    """Answer frames until the client is done; returns the exit status."""
    while True:
        try:
            body = read_frame(connection)
        except (WireError, OSError):
            return 1
        if body is None:
            return 0
        try:
            identity, code, limits = _request(unpack(body))
        except WireError as problem:
            connection.sendall(_reply(-1, Outcome("infra", stderr=str(problem))))
            continue
        try:
            outcome = caller.call(code, limits, connection)
        except ClientGone:
            return 0
        except OSError as problem:
            # The sandbox itself failed: say so, and let the client start a fresh one.
            connection.sendall(_reply(identity, Outcome("infra", stderr=str(problem))))
            return 1
        connection.sendall(_reply(identity, outcome))


def _reply(identity: int, outcome: Outcome) -> bytes:
    return pack({"id": identity} | asdict(outcome))


def _request(message: dict[str, Any]) -> tuple[int, str, Limits]:
    """The parts of a request; raises WireError naming the first that is wrong."""
    code = message.get("code")
    if not isinstance(code, str):
        raise WireError("'code' must be a string")
    return (
        int(_number(message, "id", 0, 2**53)),
        code,
        Limits(
            wall_seconds=_number(message, "wall_seconds", 0.01, 86_400),
            cpu_seconds=math.ceil(_number(message, "cpu_seconds", 0.01, 86_400)),
            memory_bytes=int(_number(message, "memory_bytes", 1 << 20, 1 << 40)),
            output_bytes=int(_number(message, "output_bytes", 1, 2_000_000)),
        ),
    )


def _number(message: dict[str, Any], key: str, low: float, high: float) -> float:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise WireError(f"{key!r} must be a number from {low} to {high}")
    return value
