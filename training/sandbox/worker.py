"""One supervisor process and the connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import struct
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, Any

from training.sandbox.isolation import (
    KEEPER_ID,
    PROGRAM_ID,
    Launch,
    SandboxError,
    beside,
    bubblewrap_launch,
    container_launch,
    source_hash,
    unsafe_launch,
)
from training.sandbox.settings import Isolation, SandboxSettings
from training.sandbox.verdict import CallResult, Verdict

START_SECONDS = 120.0
"""How long a supervisor may take to import its libraries on a busy machine."""
_GRACE_SECONDS = 20.0
"""What a reply may take beyond the call's own wall limit before the supervisor counts as wedged."""
_REMOVE_SECONDS = 60.0
"""How long the engine may take to remove a supervisor's container."""
_MAX_FRAME = 16 * 1024 * 1024

log = logging.getLogger(__name__)


class WorkerLost(Exception):
    """The supervisor died, went silent or broke the protocol; it must be started again."""


class Worker:
    """A supervisor, started and stopped by its client. It runs one call at a time.

    Where supervisors wait beside the stage, in containers of their own, the first free one is
    taken instead, and the engine starts a fresh one when it is given up.
    """

    def __init__(self, settings: SandboxSettings, isolation: Isolation) -> None:
        self._settings = settings
        self._isolation = isolation
        self._folder: Path | None = None
        self._folder_lock: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._container: str | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._calls = 0
        self.facts: dict[str, Any] = {}
        """What the supervisor said of itself: versions, and if programs have their own user."""
        self.last_seen = 0.0
        """Monotonic time of its last sound reply."""

    async def start(self) -> None:
        """Start the process and wait for its greeting; raises SandboxError with its last words."""
        shared = beside()
        if shared is None:
            self._folder, self._folder_lock = _private_folder()
        else:
            self._folder = shared / uuid.uuid4().hex[:12]
        inner = self._folder / "run" if shared is None else self._folder
        inner.mkdir()
        arrived: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        arrived = asyncio.get_running_loop().create_future()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if arrived.done():
                writer.close()
            else:
                arrived.set_result((reader, writer))

        with tempfile.TemporaryFile() as output:
            try:
                path = inner / "socket"
                async with await asyncio.start_unix_server(accept, path, limit=1 << 20):
                    # The supervisor may be another user; the folder above is ours alone.
                    path.chmod(0o666)
                    inner.chmod(0o755)
                    if shared is None:
                        await self._spawn(self._launch(inner), output)
                    await self._greet(arrived)
            except BaseException as problem:
                words = _last_words(output)
                await self.stop()
                if isinstance(problem, WorkerLost | TimeoutError | OSError):
                    raise SandboxError(
                        f"a {self._isolation} supervisor did not start: {problem}{words}"
                    ) from None
                raise

    async def call(
        self, code: str, wall_seconds: float | None = None, memory_mb: int | None = None
    ) -> CallResult:
        """Run `code`, under the settings' limits or the ones given.

        Raises WorkerLost when there is no sound reply in time.
        """
        assert self._writer is not None, "start() first"
        settings = self._settings
        wall_seconds = wall_seconds or settings.wall_seconds
        self._calls += 1
        request = {
            "id": self._calls,
            "code": code,
            "wall_seconds": wall_seconds,
            "cpu_seconds": settings.cpu_seconds,
            "memory_bytes": (memory_mb or settings.memory_mb) << 20,
            "output_bytes": settings.output_bytes,
        }
        try:
            body = json.dumps(request).encode("ascii")
            self._writer.write(struct.pack(">I", len(body)) + body)
            async with asyncio.timeout(wall_seconds + _GRACE_SECONDS):
                await self._writer.drain()
                reply = await self._read()
        except TimeoutError:
            raise WorkerLost("no reply in time") from None
        except OSError as problem:
            raise WorkerLost(str(problem)) from None
        result = _result(reply, self._calls)
        self.last_seen = time.monotonic()
        return result

    async def stop(self) -> None:
        """End the supervisor and everything in it, and remove its folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            if self._container is not None:
                await _remove_container(self._container)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None

    def _launch(self, socket_folder: Path) -> Launch:
        if self._isolation == "container":
            name = f"anchorloop-sandbox-{uuid.uuid4().hex}"
            return container_launch(self._settings, socket_folder, name)
        if self._isolation == "bubblewrap":
            return bubblewrap_launch(socket_folder)
        return unsafe_launch(socket_folder)

    async def _spawn(self, launch: Launch, output: IO[bytes]) -> None:
        self._container = launch.container
        command, kept = launch.command, []
        if launch.maps_users:
            info_read, info_write = os.pipe()
            block_read, block_write = os.pipe()
            kept = [info_write, block_read]
            options = ["--info-fd", str(info_write), "--userns-block-fd", str(block_read)]
            command = [command[0], *options, *command[1:]]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=kept,
                start_new_session=True,  # an interrupt is the client's to handle
            )
        finally:
            for descriptor in kept:
                os.close(descriptor)
            if launch.maps_users:
                await asyncio.to_thread(_map_users, info_read, block_write)

    async def _greet(
        self, arrived: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    ) -> None:
        ended: asyncio.Future[Any] = asyncio.ensure_future(self._end_of_process())
        try:
            await asyncio.wait(
                [arrived, ended], timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
        if not arrived.done():
            status = self._process.returncode if self._process else None
            raise WorkerLost("silence" if status is None else f"it ended with status {status}")
        self._reader, self._writer = arrived.result()
        async with asyncio.timeout(START_SECONDS):
            self.facts = await self._read()
        if self.facts.get("source") != source_hash():
            raise WorkerLost(
                f"image {self._settings.image!r} was built from other sources than "
                "sandbox_image/ now holds (build it again)"
            )
        self.last_seen = time.monotonic()

    async def _end_of_process(self) -> None:
        """Wait for the process; one beside the stage is not ours to wait for."""
        if self._process is not None:
            await self._process.wait()
        else:
            await asyncio.Event().wait()

    async def _read(self) -> dict[str, Any]:
        assert self._reader is not None
        try:
            (length,) = struct.unpack(">I", await self._reader.readexactly(4))
            if length > _MAX_FRAME:
                raise WorkerLost(f"a frame of {length} bytes")
            message = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerLost("it closed the connection") from None
        except ValueError:
            raise WorkerLost("a frame that is not JSON") from None
        if not isinstance(message, dict):
            raise WorkerLost("a frame that is not an object")
        return message


def _private_folder() -> tuple[Path, int]:
    """A folder that only this user may enter, on a path short enough for a socket's name.

    The descriptor holds a lock on it, by which a folder in use is told from one that was left.
    """
    parent = tempfile.gettempdir()
    place = parent if len(parent) < 50 else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="anchorloop-box-", dir=place))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return folder, descriptor


async def _remove_container(name: str) -> None:
    """Remove a supervisor's container; a warning where that fails.

    A supervisor that is left ends by itself, since nobody listens to it any more.
    """
    try:
        killer = await asyncio.create_subprocess_exec(
            "docker", "rm", "--force", name,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_REMOVE_SECONDS):
                status = await killer.wait()
        except TimeoutError:
            killer.kill()
            await killer.wait()
            raise
    except OSError as problem:  # a TimeoutError is one
        log.warning("sandbox container %s may still be there: %r", name, problem)
    else:
        if status != 0:
            log.warning("sandbox container %s may still be there: status %d", name, status)


def _map_users(info: int, block: int) -> None:
    """Map root and the supervisor's two ids into the new user namespace, one to one."""
    with os.fdopen(info) as described, os.fdopen(block, "w") as release:
        try:
            process = json.loads(described.read())["child-pid"]
        except ValueError:
            return  # bwrap ended, before it told or while it did; its own words say why
        count = PROGRAM_ID - KEEPER_ID + 1
        for kind in ("uid_map", "gid_map"):
            lines = f"0 0 1\n{KEEPER_ID} {KEEPER_ID} {count}\n"
            Path(f"/proc/{process}/{kind}").write_text(lines)
        release.write("1")


def _result(reply: dict[str, Any], identity: int) -> CallResult:
    """The reply as a typed result; raises WorkerLost for anything else."""
    if reply.get("id") != identity:
        raise WorkerLost(f"reply {reply.get('id')} to call {identity}")
    try:
        result = CallResult(
            verdict=Verdict(reply["verdict"]),
            stdout=reply["stdout"],
            exit_code=reply["exit_code"],
            signal=reply["signal"],
            seconds=reply["seconds"],
            truncated=reply["truncated"],
            stderr=reply["stderr"],
        )
    except (KeyError, ValueError):
        raise WorkerLost("a reply that lacks a field or has an unknown verdict") from None
    sound = (
        isinstance(result.stdout, str)
        and isinstance(result.stderr, str)
        and isinstance(result.seconds, float)
        and isinstance(result.truncated, bool)
        and isinstance(result.exit_code, int | None)
        and isinstance(result.signal, int | None)
    )
    if not sound:
        raise WorkerLost("a reply with a field of the wrong type")
    return result


def _last_words(output: IO[bytes]) -> str:
    output.flush()
    output.seek(0)
    words = output.read()[-600:].decode("utf-8", "replace").strip()
    return f"; it said: {words}" if words else ""
