"""How fast is a sandbox call, against the plain ways to run a program in a process of its own?

    python benchmarks/sandbox.py [--calls N] [--seconds S]

Two programs, `print(1)` and one that imports NumPy, SciPy and SymPy, each run by the sandbox at
every level that is there, by a fresh interpreter a call, by bubblewrap around a fresh interpreter
a call and, where Docker and the image are there, by one `docker exec` a call. Everything in one
run, two calls at a time, alternating, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.isolation import (
    ENVIRONMENT,
    bubblewrap,
    bubblewrap_launch,
    bubblewrap_problem,
    container_problem,
)
from training.sandbox.settings import SandboxSettings

PROGRAMS = {
    "print(1)": ("print(1)", "1\n"),
    "numpy, scipy, sympy": (
        "import numpy, scipy, sympy; print(sympy.Integer(int(numpy.arange(3).sum())))",
        "3\n",
    ),
}
AT_ONCE = 2
Run = Callable[[str], Awaitable[str]]
Way = Callable[[], contextlib.AbstractAsyncContextManager[Run]]


async def execute(command: list[str]) -> str:
    """Run a command to its end and return its stdout."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return (await process.communicate())[0].decode()


@contextlib.asynccontextmanager
async def fresh() -> AsyncIterator[Run]:
    yield lambda code: execute([str(ENVIRONMENT / "bin" / "python"), "-c", code])


@contextlib.asynccontextmanager
async def fresh_in_bubblewrap() -> AsyncIterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        launch = bubblewrap_launch(Path(folder))
        python = launch.command.index("/opt/python/bin/python")
        own = ("--as-pid-1", "--new-session")  # what only a supervisor needs
        options = [word for word in launch.command[:python] if word not in own]
        yield lambda code: execute([*options, "/opt/python/bin/python", "-c", code])


@contextlib.asynccontextmanager
async def docker_exec() -> AsyncIterator[Run]:
    name = f"anchorloop-benchmark-{uuid.uuid4().hex}"
    start = ["docker", "run", "--rm", "--detach", "--name", name, "--network", "none"]
    image = SandboxSettings().image
    await execute([*start, "--entrypoint", "python3", image, "-c", "import time; time.sleep(9999)"])
    try:
        yield lambda code: execute(["docker", "exec", name, "python3", "-c", code])
    finally:
        await execute(["docker", "rm", "--force", name])


def sandbox(level: str) -> Way:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Run]:
        settings = SandboxSettings(isolation=level, workers=AT_ONCE)  # type: ignore[arg-type]
        async with Sandbox(settings) as box:

            async def run(code: str) -> str:
                return (await box.run(code)).stdout

            yield run

    return opened


async def stretch(run: Run, code: str, answer: str, calls: int, seconds: float) -> list[float]:
    """At most `calls` calls in about `seconds`, two at a time; their latencies."""
    latencies: list[float] = []
    stop = time.perf_counter() + seconds
    left = iter(range(calls))

    async def lane() -> None:
        for _ in left:
            start = time.perf_counter()
            if await run(code) != answer:
                raise RuntimeError("a call came back wrong; the figures would mean nothing")
            latencies.append(time.perf_counter() - start)
            if time.perf_counter() > stop:
                return

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    return latencies


async def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the sandbox with plain processes.")
    parser.add_argument("--calls", type=int, default=400, help="calls a stretch, at most")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds a stretch, about")
    parser.add_argument("--rounds", type=int, default=3, help="stretches a way and program")
    options = parser.parse_args()
    ways: dict[str, Way] = {"fresh python -c": fresh}
    if bubblewrap() and bubblewrap_problem() is None:
        ways = {"sandbox, bubblewrap": sandbox("bubblewrap"), **ways}
        ways["bubblewrap a call"] = fresh_in_bubblewrap
    if container_problem(SandboxSettings().image) is None:
        ways = {"sandbox, container": sandbox("container"), **ways}
        ways["docker exec a call"] = docker_exec
    rates: dict[tuple[str, str], list[float]] = {}
    latencies: dict[tuple[str, str], list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        runs = {name: await stack.enter_async_context(way()) for name, way in ways.items()}
        for _ in range(options.rounds):
            for program, (code, answer) in PROGRAMS.items():
                for name, run in runs.items():
                    start = time.perf_counter()
                    taken = await stretch(run, code, answer, options.calls, options.seconds)
                    rate = len(taken) / (time.perf_counter() - start)
                    rates.setdefault((program, name), []).append(rate)
                    latencies.setdefault((program, name), []).extend(taken)
    print(f"two calls at a time, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'program':20} {'way':22} {'calls/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'x fresh':>8}")
    for (program, name), measured in rates.items():
        taken = sorted(latencies[program, name])
        base = statistics.median(rates[program, "fresh python -c"])
        middle = statistics.median(measured)
        print(
            f"{program:20} {name:22} {middle:8.1f} {taken[len(taken) // 2] * 1000:8.1f} "
            f"{taken[int(len(taken) * 0.99)] * 1000:8.1f} {middle / base:8.1f}"
        )


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except SandboxError as problem:
        raise SystemExit(str(problem)) from None
