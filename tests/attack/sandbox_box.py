"""A sandbox on an event loop of its own, for tests that look at it from outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import psutil

from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import CallResult, Verdict

Result = TypeVar("Result")

WALL, MEMORY_MB, OUTPUT = 3.0, 256, 262_144
HANG_SECONDS = 120.0


class Box:
    """Opens a Sandbox in a thread; every method blocks, and fails after HANG_SECONDS."""

    def __init__(self, isolation: str, workers: int = 1) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.sandbox = Sandbox(
            SandboxSettings(
                isolation=isolation,  # type: ignore[arg-type]
                workers=workers,
                wall_seconds=WALL,
                cpu_seconds=WALL + 1,
                memory_mb=MEMORY_MB,
                output_bytes=OUTPUT,
            )
        )
        self.wait(self.sandbox.__aenter__())

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_SECONDS)

    def run(self, code: str) -> CallResult:
        return self.wait(self.sandbox.run(code))

    def run_all(self, codes: list[str]) -> list[CallResult]:
        async def together() -> list[CallResult]:
            return await asyncio.gather(*(self.sandbox.run(code) for code in codes))

        return self.wait(together())

    def close(self) -> None:
        try:
            self.wait(self.sandbox.__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def supervisor(self) -> psutil.Process:
        """The first worker's supervisor as the host sees it."""
        (worker, *_) = self.sandbox._workers
        assert worker._process is not None
        if worker._container is not None:
            shown = subprocess.run(
                ["docker", "inspect", "--format", "{{.State.Pid}}", worker._container],
                capture_output=True, check=True, text=True,
            )  # fmt: skip
            return psutil.Process(int(shown.stdout))
        (supervisor,) = psutil.Process(worker._process.pid).children()
        return supervisor

    def assert_unharmed(self, before: int) -> None:
        """Nothing of the call runs, the supervisor is not swollen, and the next call passes."""
        supervisor = self.supervisor()
        assert supervisor.children(recursive=True) == []
        assert supervisor.memory_info().rss - before < 50 << 20
        assert self.sandbox.metrics()["sandbox/restarts"] == 0, "the supervisor did not survive"
        hello = self.run("import os; print('hello', os.listdir('.'), os.listdir('..'))")
        assert (hello.verdict, hello.stdout) == (Verdict.OK, "hello [] ['call']\n")

    def host_free(self) -> int:
        """Bytes free on the host's file systems that a program could conceivably reach."""
        return sum(os.statvfs(place).f_bavail * os.statvfs(place).f_frsize for place in ("/",))
