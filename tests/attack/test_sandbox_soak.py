"""A long mixed load: memory, descriptors and processes stay flat, and no verdict goes astray.

`make soak` runs 20,000 calls and prints the figures that docs/sandbox.md quotes; the ordinary
tests run 1,000.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import psutil
import pytest
from attack_table import ERROR, MEMORY, OK, OUTPUT, TIMEOUT

from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import Verdict

WORKERS, AT_ONCE = 2, 6

HOSTILE: list[tuple[str, tuple[Verdict, ...]]] = [
    ("while True: pass", (TIMEOUT,)),
    ("import os\nwhile True: os.fork()", (ERROR, TIMEOUT)),
    ("x = []\nwhile True: x.append(b'x' * (1 << 20))", (MEMORY, TIMEOUT)),
    ("while True: print('x' * 100)", (OUTPUT, TIMEOUT)),
    ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)", (OK, TIMEOUT)),
    ("n = 0\nwhile True: open(f'{n}', 'wb').write(b'x' * (1 << 20)); n += 1", (ERROR, TIMEOUT)),
    ("import ctypes; ctypes.string_at(0)", (ERROR, TIMEOUT)),
    ("for n in range(10**6): open(f'{n}', 'w')", (ERROR, TIMEOUT)),
]
BENIGN = [
    ("print({n} + 1)", "{m}\n"),
    ("import numpy as np; print(np.full(3, {n}).sum() - 2 * {n} + 1)", "{m}\n"),
    ("from sympy import *; x = symbols('x'); print(solve(x - {n} - 1, x)[0])", "{m}\n"),
    ("import math\nassert math.comb(5, 2) == 10\nprint(sum(range({n})) * 0 + {n} + 1)", "{m}\n"),
]


@dataclass(frozen=True)
class Sample:
    """The state between two stretches of calls; sizes in MB, latencies in ms."""

    calls: int
    client_mb: float
    supervisors_mb: float
    descriptors: int
    processes: int
    p50: float
    p99: float


def state(calls: int, seconds: list[float]) -> Sample:
    own = psutil.Process()
    others = own.children(recursive=True)
    ordered = sorted(seconds)
    return Sample(
        calls=calls,
        client_mb=own.memory_info().rss / 2**20,
        supervisors_mb=sum(process.memory_info().rss for process in others) / 2**20,
        descriptors=sum(len(os.listdir(f"/proc/{p.pid}/fd")) for p in [own, *others]),
        processes=len(others),
        p50=statistics.median(ordered) * 1000,
        p99=ordered[int(len(ordered) * 0.99)] * 1000,
    )


async def soak(calls: int, stretches: int) -> list[Sample]:
    """Run the load and return a sample after each stretch; raises on a wrong verdict."""
    chance = random.Random(0)
    settings = SandboxSettings(
        isolation="bubblewrap", workers=WORKERS, wall_seconds=1, memory_mb=128
    )
    samples = []
    async with Sandbox(settings) as sandbox:
        gate = asyncio.Semaphore(AT_ONCE)
        ends: dict[str, Counter[Verdict]] = defaultdict(Counter)

        async def one(number: int, seconds: list[float]) -> None:
            hostile = chance.random() < 0.05
            async with gate:
                if hostile:
                    code, verdicts = chance.choice(HOSTILE)
                    result = await sandbox.run(code)
                    assert result.verdict in verdicts, (code, result.verdict, result.stderr)
                    ends[code][result.verdict] += 1
                    return
                code, answer = chance.choice(BENIGN)
                result = await sandbox.run(code.format(n=number))
                # On a crowded machine a sound program may run out of its one second.
                if result.verdict is not TIMEOUT:
                    seen = (result.verdict, result.stdout)
                    assert seen == (OK, answer.format(m=number + 1)), (code, result)
                    seconds.append(result.seconds)

        for stretch in range(stretches):
            seconds: list[float] = []
            numbers = range(stretch * calls // stretches, (stretch + 1) * calls // stretches)
            await asyncio.gather(*(one(number, seconds) for number in numbers))
            samples.append(state(numbers.stop, seconds))
        # On a crowded machine one may run out of time before it is caught, but not each of many.
        for code, (expected, *_) in HOSTILE:
            assert ends[code][expected] or ends[code].total() < 4, (code, ends[code])
        assert sandbox.metrics()["sandbox/infra"] == 0
        assert sandbox.metrics()["sandbox/restarts"] == 0
    return samples


def check(samples: list[Sample]) -> None:
    """Nothing grows after the first stretch, in which caches fill."""
    first, last = samples[0], samples[-1]
    assert last.client_mb - first.client_mb < 20
    assert last.supervisors_mb - first.supervisors_mb < 20
    assert last.descriptors <= first.descriptors
    assert last.processes == first.processes


def test_a_thousand_mixed_calls_leave_nothing_behind() -> None:
    check(asyncio.run(soak(1000, 4)))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_twenty_thousand_mixed_calls() -> None:
    start = time.monotonic()
    samples = asyncio.run(soak(20_000, 20))
    print(f"\n20,000 calls in {time.monotonic() - start:.0f} s")
    print("calls  client MB  supervisors MB  descriptors  processes  p50 ms  p99 ms")
    for s in samples:
        print(
            f"{s.calls:5}  {s.client_mb:9.1f}  {s.supervisors_mb:14.1f}  {s.descriptors:11}  "
            f"{s.processes:9}  {s.p50:6.1f}  {s.p99:6.1f}"
        )
    check(samples)
