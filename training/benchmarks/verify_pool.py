"""A pool of math-verify processes, each under a hard deadline and a memory limit.

Thread-safe: any number of threads may ask, each request takes the next free worker. A worker that
stops answering altogether is killed and replaced, and its request fails as infrastructure.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from training.benchmarks.verify_worker import CANNOT_READ, WALL_SECONDS

_START_SECONDS = 60.0


@dataclass(frozen=True)
class Verified:
    """math-verify's verdict; `equal` is None when it gave none, and `reason` says why.

    `limit_hit` is True when it was stopped for time or memory.
    """

    equal: bool | None
    reason: str
    limit_hit: bool = False


class GraderError(Exception):
    """The grading machinery itself failed; nothing is known about the answer."""


class VerifyPool:
    """Context manager over `workers` processes, started when first needed.

    Raises:
        GraderError: math-verify is not installed.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"a pool needs at least one worker, got {workers}")
        if find_spec("math_verify") is None:
            raise GraderError("math-verify is not installed; install anchorloop[eval].")
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._workers: list[_Worker] = []
        for _ in range(workers):
            self._idle.put(None)

    def __enter__(self) -> VerifyPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start every process now, without waiting for it: the first question then need not."""
        count = self._idle.qsize()
        taken = [self._idle.get() for _ in range(count)]
        for worker in taken:
            if worker is None:
                worker = _Worker()
                self._workers.append(worker)
            self._idle.put(worker)

    def verify(self, gold: str, answer: str) -> Verified:
        """Whether math-verify takes `answer` for `gold`.

        Raises:
            GraderError: the worker died or hung twice; the response must be dropped as infra.
        """
        worker = self._idle.get()
        try:
            for _ in range(2):
                if worker is None or not worker.alive:
                    worker = _Worker()
                    self._workers.append(worker)
                reply = worker.ask(gold, answer)
                if reply is not None:
                    limit = reply["equal"] is None and CANNOT_READ not in reply["reason"]
                    return Verified(reply["equal"], reply["reason"], limit)
                worker.end()
                self._workers.remove(worker)
            raise GraderError("math-verify's process failed twice on one answer.")
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "training.benchmarks.verify_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._number = 0
        self._unread = b""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, gold: str, answer: str) -> dict[str, Any] | None:
        """The worker's reply, or None when none came."""
        self._number += 1
        request = {"number": self._number, "gold": gold, "answer": answer}
        patience = WALL_SECONDS + 5.0 + (_START_SECONDS if self._number == 1 else 0.0)
        deadline = time.monotonic() + patience
        try:
            self._write(json.dumps(request).encode() + b"\n")
            while True:
                line = self._read_line(deadline)
                if line is None:
                    return None
                reply: dict[str, Any] = json.loads(line)
                if reply["number"] == self._number:
                    return reply
        except (OSError, ValueError):
            return None

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) :]

    def _read_line(self, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            wait = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], wait)
            part = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not part:
                return None
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> None:
        """Close the pipe, which lets the worker end its child; kill it if it lingers."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
