"""Faults that are raised inside a process of ours, at the very place where they would happen.

``FAULT`` is ``name`` or ``name:argument``; a name followed by ``@file`` strikes only until the
file exists, which it makes as it strikes. What can be done from outside (signals, servers, disks)
is done there and not here.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]


def be_patient() -> None:
    """Wait for any tool, however busy the machine is.

    The embedded engine batches anew without rows whose tool is late, so that rounding follows time.
    """

    def patch(module: ModuleType) -> None:
        module.TransformersEngine.__init__.__kwdefaults__["grace_seconds"] = 600.0

    after_import("training.rollout.transformers_engine", patch)


def arm_by_environment() -> None:
    """Be patient, and arm the fault that ``FAULT`` names, if any."""
    be_patient()
    if os.environ.get("FAULT"):
        arm(os.environ["FAULT"])


def arm(fault: str) -> None:
    """Make a fault strike in this process once it gets to the place."""
    told, _, once = fault.partition("@")
    name, _, argument = told.partition(":")
    strike = _Once(Path(once)) if once else _Always()
    FAULTS[name](strike, argument)


class _Always:
    def __call__(self) -> bool:
        return True


class _Once(_Always):
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self) -> bool:
        if self._mark.exists():
            return False
        self._mark.touch()
        return True


def die() -> None:
    """kill -9 to this very process."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def after_import(name: str, patch: Patch) -> None:
    """Call ``patch`` with a module: now if it is loaded, else when it will be."""
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, patch))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, patch: Patch) -> None:
        self._name, self._patch = name, patch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.loader is not None
        execute, patch = spec.loader.exec_module, self._patch

        def then(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = then  # type: ignore[method-assign]
        return spec


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call ``act`` with the arguments of a function before each of its calls."""
    original = getattr(owner, name)

    def instead(*arguments: Any, **named: Any) -> Any:
        act(*arguments, **named)
        return original(*arguments, **named)

    setattr(owner, name, instead)


class _DyingFile:
    """A file that takes ``left`` more bytes; then the process is killed, those bytes written."""

    def __init__(self, file: Any, left: int) -> None:
        self._file, self._left = file, left

    def write(self, data: bytes) -> int:
        if len(data) < self._left:
            self._left -= len(data)
            return int(self._file.write(data))
        self._file.write(memoryview(data)[: self._left])
        self._file.flush()
        die()
        return 0

    def flush(self) -> None:
        self._file.flush()


def die_in_checkpoint(strike: _Always, argument: str) -> None:
    """Die in writing the checkpoint after the first, with a share of its bytes on the disk."""
    folder, share = Path(argument.rpartition(",")[0]), float(argument.rpartition(",")[2])

    def patch(module: ModuleType) -> None:
        save = module.torch.save

        def instead(state: Any, file: Any) -> None:
            first = folder / "step_1" / "state.pt"
            if first.exists() and strike():
                file = _DyingFile(file, int(share * first.stat().st_size))
            save(state, file)

        module.torch.save = instead  # type: ignore[attr-defined]

    after_import("training.trainers.torch.checkpoint", patch)


def die_between_data_and_manifest(strike: _Always, _: str) -> None:
    """Die when a checkpoint's data is on the disk and its manifest is not begun."""
    _die_on("training.trainers.torch.checkpoint", "_digest", strike, _in_second_checkpoint)


def die_between_manifest_and_rename(strike: _Always, _: str) -> None:
    """Die when a checkpoint is whole and has not got its name."""
    _die_on("training.trainers.torch.checkpoint", "_flush_folder", strike, _in_second_checkpoint)


def _in_second_checkpoint(path: Path, *_: Any) -> bool:
    return "step_2.partial" in str(path)


def die_before_publishing(strike: _Always, _: str) -> None:
    """Die when all steps are done and all checkpoints written, before the payload is."""
    _die_on("training.trainers.torch.backend", "save_model", strike)


def die_before_manifest(strike: _Always, _: str) -> None:
    """Die when an artifact's files are on the disk and its manifest is not begun."""
    _die_on("training.store", "payload_digest", strike)


def die_before_rename(strike: _Always, _: str) -> None:
    """Die when an artifact is whole and is not yet published."""

    def patch(module: ModuleType) -> None:
        before(module.Store, "set_aside", lambda *_: die() if strike() else None)

    after_import("training.store", patch)


def die_after_publishing(strike: _Always, stage: str) -> None:
    """The driver dies when a stage is published, before anybody is told."""

    def patch(module: ModuleType) -> None:
        def look(watch: Any, force: bool = False) -> None:
            place = watch._place
            if force and watch._entry.name == stage and place.artifact.exists() and strike():
                die()

        before(module._Watch, "look", look)

    after_import("tasks.stage", patch)


def die_between_iterations(strike: _Always, iteration: str) -> None:
    """The driver dies when an iteration is done and before the next begins."""

    def patch(module: ModuleType) -> None:
        def report(_run: Any, row: dict[str, Any]) -> None:
            if row["iteration"] == int(iteration) and strike():
                die()

        before(module, "report_row", report)

    after_import("tasks.tracked", patch)


def _die_on(
    module: str, name: str, strike: _Always, when: Callable[..., bool] = lambda *_: True
) -> None:
    def act(*arguments: Any, **_: Any) -> None:
        if when(*arguments) and strike():
            die()

    after_import(module, lambda loaded: before(loaded, name, act))


def out_of_memory(strike: _Always, step: str) -> None:
    """torch runs out of the device's memory in an update, as its allocator says it."""

    def patch(module: ModuleType) -> None:
        count = 0

        def act(*_: Any) -> None:
            nonlocal count
            count += 1
            if count > int(step) and strike():
                raise module.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

        before(module.PolicyUpdate, "_optimise", act)

    after_import("training.trainers.torch.update", patch)


def no_more_memory(strike: _Always, _: str) -> None:
    """The host gives no more memory in an update: a real allocation that cannot succeed."""
    import resource

    def patch(module: ModuleType) -> None:
        def act(*_: Any) -> None:
            if strike():
                resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
                module.torch.empty(1 << 38)

        before(module.PolicyUpdate, "_optimise", act)

    after_import("training.trainers.torch.update", patch)


def eat_memory(strike: _Always, _: str) -> None:
    """The stage takes memory in an update until the kernel stops it, at most 4 GB."""

    def patch(module: ModuleType) -> None:
        kept: list[bytearray] = []

        def act(*_: Any) -> None:
            if strike():
                kept.extend(bytearray(os.urandom(1 << 16) * (1 << 8)) for _ in range(1 << 8))
                raise AssertionError("nobody stopped it")

        before(module.PolicyUpdate, "_optimise", act)

    after_import("training.trainers.torch.update", patch)


def wait_in_step(_: _Always, argument: str) -> None:
    """The stage stands still before an update until a file is there: ``count,file``.

    ``<file>.here`` says that it does.
    """
    count, _, file = argument.partition(",")

    def patch(module: ModuleType) -> None:
        left = int(count)

        def act(*_: Any) -> None:
            nonlocal left
            left -= 1
            while left == 0 and not Path(file).exists():
                Path(f"{file}.here").touch()
                time.sleep(0.05)

        before(module.PolicyUpdate, "_optimise", act)

    after_import("training.trainers.torch.update", patch)


def full_disk(strike: _Always, argument: str) -> None:
    """Fill the disk of a file, but for some bytes, at a place: ``place,bytes left,file``.

    The disk is a small one that the test has made.
    """
    place, left, file = argument.split(",")
    module, owner, name = PLACES[place]

    def act(*_: Any, **__: Any) -> None:
        if not Path(file).exists() and strike():
            fill(Path(file), int(left))

    def patch(loaded: ModuleType) -> None:
        before(getattr(loaded, owner) if owner else loaded, name, act)

    after_import(module, patch)


PLACES = {
    "checkpoint": ("training.trainers.torch.checkpoint", "", "_rng_state"),
    "half checkpoint": ("training.trainers.torch.checkpoint", "torch", "save"),
    "payload": ("training.trainers.torch.backend", "", "save_model"),
    "metrics": ("training.stages.base", "StageContext", "log_metrics"),
    "outcome": ("tasks.runs", "Run", "record"),
    "journal": ("tasks.tracked", "", "report_outcomes"),
}


def fill(file: Path, left: int) -> None:
    """Write until the disk of ``file`` has no more than ``left`` bytes."""
    with file.open("wb", buffering=0) as filler:
        space = os.statvfs(file)
        try:
            for _ in range(max(0, space.f_bavail * space.f_frsize - left) // 4096):
                filler.write(bytes(4096))
            while left == 0:
                filler.write(bytes(4096))
        except OSError:
            return


def clock_jumps(_: _Always, __: str) -> None:
    """The wall clock is an hour ahead or an hour behind at every look."""
    real, looks = time.time, [0]

    def jumping() -> float:
        looks[0] += 1
        return real() + (3600 if looks[0] % 2 else -3600)

    time.time = jumping
    time.time_ns = lambda: int(jumping() * 1e9)


FAULTS: dict[str, Callable[[_Always, str], None]] = {
    function.__name__: function
    for function in (
        die_in_checkpoint,
        die_between_data_and_manifest,
        die_between_manifest_and_rename,
        die_before_publishing,
        die_before_manifest,
        die_before_rename,
        die_after_publishing,
        die_between_iterations,
        out_of_memory,
        no_more_memory,
        eat_memory,
        wait_in_step,
        full_disk,
        clock_jumps,
    )
}
