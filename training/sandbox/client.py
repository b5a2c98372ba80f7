"""The sandbox as a stage uses it: a pool of supervisors behind one asynchronous `run`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from types import TracebackType

from training.sandbox.isolation import SandboxError, choose
from training.sandbox.selftest import prove
from training.sandbox.settings import Isolation, SandboxSettings
from training.sandbox.verdict import CallResult, Verdict
from training.sandbox.worker import Worker, WorkerLost

__all__ = ["Sandbox", "SandboxError"]

MAX_CODE = 1_000_000
"""Longest program in characters; a longer one is an error of its own and is not sent."""
RETRIES = 2
"""How often a call that the sandbox itself failed is tried again."""
CANARY_AFTER_SECONDS = 60.0
"""A supervisor unused for this long must run a canary call before the next real one."""
_CANARY_SECONDS = 20.0
"""What a canary call may take: it needs milliseconds, but the machine may be overloaded."""
_STARTS = 3
"""How often a lost supervisor is started again before it is given up."""
_SMALL_SAMPLE = 100
"""Fewer calls than this are judged as if they were this many, while the sandbox runs."""

log = logging.getLogger(__name__)


class Sandbox:
    """Runs hostile Python. Asynchronous context manager, for one event loop.

    `await run(code)` waits for a free supervisor (back-pressure), and always returns a
    CallResult: a program's own failure is a verdict and never an exception. It raises
    SandboxError once the share of infra failures is above the setting.
    """

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self._settings = settings or SandboxSettings()
        self._isolation: Isolation | None = None
        self._free: asyncio.Queue[Worker | None] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._restarting: set[asyncio.Task[None]] = set()
        self._left = self._settings.workers
        self._verdicts: Counter[Verdict] = Counter()
        self._restarts = self._retries = self._canaries = 0
        self._waited = self._worked = 0.0
        self._opened = 0.0

    @property
    def isolation(self) -> Isolation:
        """The level in use, to be written into the run's tags."""
        if self._isolation is None:
            raise SandboxError("the sandbox is not open")
        return self._isolation

    async def __aenter__(self) -> Sandbox:
        self._isolation = choose(self._settings)
        workers = [Worker(self._settings, self._isolation) for _ in range(self._settings.workers)]
        starts = await asyncio.gather(*(w.start() for w in workers), return_exceptions=True)
        problems = [start for start in starts if isinstance(start, BaseException)]
        if problems:
            await asyncio.gather(*(worker.stop() for worker in workers))
            raise problems[0]
        self._workers.update(workers)
        try:
            broken = [check for check in await prove(workers[0], self._isolation) if not check.ok]
        except BaseException as problem:
            await self._stop()
            if isinstance(problem, WorkerLost):
                raise SandboxError(f"the self-test lost its supervisor: {problem}") from None
            raise
        if broken:
            await self._stop()
            raise SandboxError("; ".join(f"{check.name}: {check.detail}" for check in broken))
        for worker in workers:
            self._free.put_nowait(worker)
        self._opened = time.monotonic()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()
        if kind is None:
            self._check_infra(at_least=1)

    async def run(self, code: str) -> CallResult:
        """Run one program and return what came of it."""
        if len(code) > MAX_CODE:
            reason = f"the program is longer than {MAX_CODE} characters"
            result = CallResult(Verdict.ERROR, "", None, None, 0.0, False, reason)
            self._verdicts[result.verdict] += 1
            return result
        result = _infra("no attempt was made")
        for attempt in range(1 + RETRIES):
            self._retries += attempt > 0
            result = await self._attempt(code)
            if result.verdict is not Verdict.INFRA:
                break
        self._verdicts[result.verdict] += 1
        self._check_infra(at_least=_SMALL_SAMPLE)
        return result

    def metrics(self) -> dict[str, float]:
        """Counts and times since the sandbox was opened; seconds, and calls a second."""
        calls = self._verdicts.total()
        seconds = time.monotonic() - self._opened
        return {
            "sandbox/calls": float(calls),
            "sandbox/calls_per_second": calls / seconds if seconds > 0 else 0.0,
            "sandbox/wait_seconds_mean": self._waited / calls if calls else 0.0,
            "sandbox/run_seconds_mean": self._worked / calls if calls else 0.0,
            "sandbox/restarts": float(self._restarts),
            "sandbox/retries": float(self._retries),
            "sandbox/canaries": float(self._canaries),
            **{f"sandbox/{verdict}": float(self._verdicts[verdict]) for verdict in Verdict},
        }

    async def _stop(self) -> None:
        for task in self._restarting:
            task.cancel()
        await asyncio.gather(*self._restarting, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._workers.clear()

    async def _attempt(self, code: str) -> CallResult:
        clock = time.monotonic
        asked = clock()
        worker = await self._take()
        if worker is None:
            return _infra("no supervisor is left")
        taken = clock()
        self._waited += taken - asked
        healthy = False
        try:
            if taken - worker.last_seen > CANARY_AFTER_SECONDS:
                await self._canary(worker)
            result = await worker.call(code)
            if result.verdict is Verdict.TIMEOUT:
                # A supervisor that times out on everything looks like slow programs.
                await self._canary(worker)
            healthy = result.verdict is not Verdict.INFRA
            return result
        except WorkerLost as problem:
            return _infra(str(problem))
        finally:
            self._worked += clock() - taken
            if healthy:
                self._free.put_nowait(worker)
            else:
                self._replace(worker)

    async def _take(self) -> Worker | None:
        """The next free supervisor; None when all are lost and none could be started again."""
        worker = await self._free.get()
        if worker is None:
            self._free.put_nowait(None)  # for whoever waits next
        return worker

    async def _canary(self, worker: Worker) -> None:
        """Raise WorkerLost unless a trivial program comes back right."""
        self._canaries += 1
        result = await worker.call("print(6 * 7)", wall_seconds=_CANARY_SECONDS)
        if result.verdict is not Verdict.OK or result.stdout != "42\n":
            raise WorkerLost(f"the canary call came back {result.verdict}")

    def _replace(self, worker: Worker) -> None:
        """Stop `worker` and start another in its place, in the background."""
        self._workers.discard(worker)
        task = asyncio.get_running_loop().create_task(self._restart(worker))
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _restart(self, lost: Worker) -> None:
        worker = None
        try:
            try:
                await lost.stop()
            except Exception as problem:
                log.warning("a lost supervisor could not be stopped: %r", problem)
            worker = await self._start_again()
        finally:  # whatever happened: calls must not wait for a supervisor that never comes
            if worker is not None:
                self._workers.add(worker)
                self._free.put_nowait(worker)
            else:
                self._give_up_one()

    async def _start_again(self) -> Worker | None:
        """A fresh supervisor; None when none could be started."""
        for attempt in range(_STARTS):
            await asyncio.sleep(attempt)
            self._restarts += 1
            worker = Worker(self._settings, self.isolation)
            with contextlib.suppress(SandboxError, OSError):
                await worker.start()
                return worker
        return None

    def _give_up_one(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._free.put_nowait(None)

    def _check_infra(self, at_least: int) -> None:
        calls, failed = self._verdicts.total(), self._verdicts[Verdict.INFRA]
        limit = self._settings.infra_share_limit
        if failed > limit * max(calls, at_least):
            raise SandboxError(
                f"{failed} of {calls} sandbox calls failed by the sandbox's own fault, more than "
                f"{limit:.0%}: see the log of its supervisors, and run anchorloop preflight"
            )


def _infra(reason: str) -> CallResult:
    return CallResult(Verdict.INFRA, "", None, None, 0.0, False, reason)
