"""One call: fork the program, watch it, end it, and say how it went."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
from dataclasses import dataclass, field

from sandbox_image import harden
from sandbox_image.child import NO_MEMORY, READY, ChildLimits, run_child
from sandbox_image.processes import Processes
from sandbox_image.wipe import wipe

MAX_PROCESSES = 32
MAX_DESCRIPTORS = 128
STDERR_KEPT = 4096
"""Bytes of stderr in the reply: the end, where a traceback says what happened."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LOOK_EVERY = 0.02  # seconds between two looks at memory
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class ClientGone(Exception):
    """The connection closed while the call ran; the call is over and nothing is owed."""


@dataclass(frozen=True)
class Limits:
    """What the client allows a call."""

    wall_seconds: float
    cpu_seconds: int
    memory_bytes: int
    output_bytes: int  # of stdout and of stderr, each


@dataclass
class Outcome:
    """The reply, by the supervisor's own observation."""

    verdict: str
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    truncated: bool = False


@dataclass
class _Stream:
    """A pipe from the program, read as it comes; the first `cap` bytes are kept."""

    descriptor: int
    cap: int
    parts: list[bytes] = field(default_factory=list)
    length: int = 0

    def read(self) -> bool:
        """Take what is there; False at the end."""
        part = os.read(self.descriptor, 1 << 16)
        if self.length < self.cap:
            self.parts.append(part[: self.cap - self.length])
        self.length += len(part)
        return bool(part)

    @property
    def over(self) -> bool:
        return self.length > self.cap

    def data(self) -> bytes:
        return b"".join(self.parts)


class Caller:
    """Runs calls one after the other, each in a fresh process and a fresh folder in `folder`.

    `also_wiped` are other folders that programs can write to; they are emptied after each call.
    """

    def __init__(
        self, processes: Processes, own_user: bool, folder: str, also_wiped: list[str]
    ) -> None:
        self._processes = processes
        self._own_user = own_user
        self._folder = folder
        self._base = processes.address_space()
        self._null = os.open("/dev/null", os.O_RDONLY)
        self._wiped = [folder, *also_wiped]

    def call(self, code: str, limits: Limits, connection: socket.socket) -> Outcome:
        """Run `code`; raises ClientGone, and OSError when the sandbox itself fails.

        When it returns or raises, every process and file of the call is gone.
        """
        home = os.path.join(self._folder, "call")
        os.mkdir(home, 0o700)
        oom_before = _oom_kills()
        start = time.monotonic()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                run_child(
                    code, self._child_limits(limits), self._processes, home, self._own_user,
                    self._null, out_write, err_write, status_write,
                )  # fmt: skip
            for descriptor in (out_write, err_write, status_write):
                os.close(descriptor)
            out = _Stream(out_read, limits.output_bytes)
            err = _Stream(err_read, limits.output_bytes)
            handle = os.pidfd_open(pid)
            try:
                cause = self._watch(handle, out, err, start + limits.wall_seconds, limits,
                                    connection)  # fmt: skip
                if cause:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                _, wait_status, usage = os.wait4(pid, 0)
            finally:
                os.close(handle)
                self._processes.kill()
            seconds = time.monotonic() - start
            # Every writer is dead, so both pipes end.
            for stream in (out, err):
                while not stream.over and stream.read():
                    pass
            status = os.read(status_read, 16)
        finally:
            for descriptor in (out_read, err_read, status_read):
                os.close(descriptor)
            self._clean()
        if cause == "gone":
            raise ClientGone
        exit_code = os.waitstatus_to_exitcode(wait_status)
        used = usage.ru_utime + usage.ru_stime
        if not cause and (out.over or err.over):
            cause = "output_limit"
        if not cause:
            cause = _verdict(exit_code, status, used, limits, _oom_kills() > oom_before)
        return Outcome(
            verdict=cause,
            stdout=_text(out.data()),
            stderr=_text(err.data()[-STDERR_KEPT:]),
            exit_code=exit_code if exit_code >= 0 else None,
            signal=-exit_code if exit_code < 0 else None,
            seconds=seconds,
            truncated=out.over,
        )

    def _child_limits(self, limits: Limits) -> ChildLimits:
        return ChildLimits(
            cpu_seconds=limits.cpu_seconds,
            address_space=self._base + limits.memory_bytes,
            file_bytes=harden.SCRATCH_BYTES,
            processes=MAX_PROCESSES,
            descriptors=MAX_DESCRIPTORS,
        )

    def _watch(
        self, handle: int, out: _Stream, err: _Stream, deadline: float, limits: Limits,
        connection: socket.socket,
    ) -> str:  # fmt: skip
        """Wait for the program's end; returns why it must be killed, or "" when it ended."""
        poll = select.poll()
        streams = {out.descriptor: out, err.descriptor: err}
        for descriptor in (*streams, handle):
            poll.register(descriptor, select.POLLIN)
        poll.register(connection, select.POLLRDHUP)
        look = time.monotonic() + _LOOK_EVERY
        while True:
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if now >= look:
                if self._processes.memory(limits.memory_bytes) > limits.memory_bytes:
                    return "out_of_memory"
                look = time.monotonic() + _LOOK_EVERY
            events = poll.poll(max(0.0, min(deadline, look) - now) * 1000)
            for descriptor, _ in events:
                stream = streams.get(descriptor)
                if stream is not None:
                    if not stream.read():
                        poll.unregister(descriptor)
                    elif stream.over:
                        return "output_limit"
            if any(descriptor == handle for descriptor, _ in events):
                return ""
            if any(descriptor == connection.fileno() for descriptor, _ in events):
                return "gone"

    def _clean(self) -> None:
        for place in self._wiped:
            wipe(place)


def _verdict(
    exit_code: int, status: bytes, cpu_used: float, limits: Limits, oom_killed: bool
) -> str:
    """How a program that ended by itself, or by the kernel's hand, did."""
    if not status.startswith(READY):
        return "infra"
    if exit_code == 0:
        return "ok"
    spent = cpu_used >= limits.cpu_seconds - 0.5
    if spent and exit_code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    if oom_killed or (exit_code == 1 and status.endswith(NO_MEMORY)):
        return "out_of_memory"
    return "error"


def _text(data: bytes) -> str:
    """UTF-8 text; what is not, and control characters but tab and line ends, is replaced."""
    return _CONTROL.sub("\ufffd", data.decode("utf-8", "replace"))


def _oom_kills() -> int:
    """How often the kernel killed for memory in this container; 0 where that is not told."""
    for path in _OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError), open(path) as lines:
            for line in lines:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
