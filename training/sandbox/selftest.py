"""The start-up proof: each promise of the sandbox is attacked once before anything else runs."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from training.sandbox.isolation import SandboxError, choose
from training.sandbox.probes import PROBES
from training.sandbox.settings import Isolation, SandboxSettings
from training.sandbox.worker import Worker, WorkerLost

PROBE_SECONDS = 20.0
"""What a probe may take that is not about time: a busy machine breaks no promise."""


@dataclass(frozen=True)
class Check:
    """One promise: whether it holds, what was seen, and what to do where it does not."""

    name: str
    ok: bool
    detail: str
    remedy: str


def self_test(settings: SandboxSettings) -> list[Check]:
    """Start one supervisor and attack every promise; never raises for a broken sandbox.

    The first check is whether a level of isolation is there at all. Works inside and outside a
    running event loop, and takes a few seconds.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, _self_test(settings)).result()


async def _self_test(settings: SandboxSettings) -> list[Check]:
    remedy = "run make setup; see sandbox_image/README.md for what each level needs"
    try:
        isolation = choose(settings)
        worker = Worker(settings, isolation)
        await worker.start()
    except SandboxError as problem:
        return [Check("sandbox/isolation", False, str(problem), remedy)]
    detail = isolation if isolation != "unsafe" else "none: the setting 'unsafe' is on"
    checks = [Check("sandbox/isolation", True, detail, "")]
    try:
        checks += await prove(worker, isolation)
    except WorkerLost as problem:
        checks.append(Check("sandbox/supervisor", False, f"it was lost: {problem}", remedy))
    finally:
        await worker.stop()
    return checks


async def prove(worker: Worker, isolation: Isolation) -> list[Check]:
    """Attack each promise once through `worker`; raises WorkerLost when it dies of it."""
    checks = []
    for probe in PROBES:
        if probe.isolated_only and isolation == "unsafe":
            continue
        wall_seconds = probe.wall_seconds or PROBE_SECONDS
        result = await worker.call(probe.code, wall_seconds, probe.memory_mb)
        ok = probe.holds(result)
        seen = f"{result.verdict}, printed {result.stdout[:80]!r}, {result.stderr[-120:]!r}"
        remedy = f"do not run with this sandbox; level {isolation!r} breaks a promise here"
        detail = probe.promise if ok else f"broken: {probe.promise}; seen: {seen}"
        checks.append(Check(f"sandbox/{probe.name}", ok, detail, "" if ok else remedy))
    return checks
