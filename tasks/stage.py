"""Run one stage: reuse it, or launch and watch it. The only place that knows how.

The store decides whether a stage is done: its artifact verifies, and its inputs still have the
bytes it was computed from. Prefect and MLflow only hear of it afterwards.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tasks.launchers import Job, Running
from tasks.metric_keys import stage_values
from tasks.runs import Run
from tasks.tracking import PARENT, child
from tasks.watch import Progress, StepTail, read_alarms, read_progress
from training.algorithms.alarms import Alarm
from training.disk import REMEDY
from training.errors import StageError
from training.gpu_locks import gpu_in_use, gpus_of
from training.plan import PlanEntry
from training.spec import interpreter
from training.stages.alarm_log import ALARMS
from training.stages.failure import MEMORY_ADVICE, STATUS_DISK_FULL, STATUS_TAKEN
from training.store import Place, write_atomic

log = logging.getLogger("anchorloop")

LOOK_S = 0.5
"""Time between looks at what a running stage has written."""

Show = Callable[[Progress], None]
Warn = Callable[[Alarm], None]


@dataclass(frozen=True)
class Outcome:
    """What became of a stage. ``seconds`` were paid now, ``cost_seconds`` when it was computed;
    ``ended`` is Unix time."""

    iteration: int
    stage: str
    identity: str
    path: str
    reused: bool
    seconds: float
    cost_seconds: float
    metrics: dict[str, float | int | None]
    ended: float
    alarms: int = 0


class StageFailed(RuntimeError):
    """A stage did not finish. ``kind`` is that of failure.json; ``log`` is its output.

    ``again`` says whether it may go well when tried again at once.
    """

    def __init__(
        self,
        entry: PlanEntry,
        kind: str,
        message: str,
        log_file: Path | None,
        again: bool = True,
    ) -> None:
        self.kind, self.log_file = kind, log_file
        self.again = again and kind == "infra"
        where = f" (log: {log_file})" if log_file else ""
        super().__init__(f"{entry.name} failed, {kind}: {message}{where}")


def run_stage(
    run: Run, entry: PlanEntry, show: Show | None = None, warn: Warn | None = None
) -> Outcome:
    """Make sure the stage's artifact is there and whole; returns what it took.

    ``show`` gets its progress, and ``warn`` each of its alarms, also those of a reused stage.
    Raises StageFailed. Whatever ends this call ends the stage's process too; what outlives a
    killed driver (a container) is watched again by the next one.
    """
    started = time.monotonic()
    place = run.store.place(entry.identity)
    watch = _Watch(run, entry, place, show, warn)
    now = {"stage": entry.name, "identity": entry.identity}
    write_atomic(run.folder / "current.json", json.dumps(now))
    reused = True
    try:
        while True:
            left = run.launcher.adopt(_job(run, entry, place))
            if left is not None:
                log.info("%s is still running and is watched again", entry.name)
                reused = False
                _see_through(run, entry, left, watch, None)
            elif _done(run, entry, place):
                break
            elif (busy := _busy(run, entry)) is not None:
                watch.wait_for(busy)
            else:
                log.info("%s started", entry.name)
                reused = False
                _launch(run, entry, place, watch)
    except StageError as error:
        raise StageFailed(entry, error.kind, str(error), None, error.again) from error
    watch.look(force=True)
    result = run.store.result(entry.identity)
    outcome = Outcome(
        iteration=entry.spec.iteration,
        stage=entry.spec.stage,
        identity=entry.identity,
        path=str(place.artifact),
        reused=reused,
        seconds=time.monotonic() - started,
        cost_seconds=result["seconds"],
        metrics=result["metrics"],
        ended=time.time(),
        alarms=len(read_alarms(place.work)),
    )
    run.record(asdict(outcome))
    if reused:
        log.info("%s reused", entry.name)
    else:
        log.info("%s done in %.1f s", entry.name, outcome.seconds)
    return outcome


def _busy(run: Run, entry: PlanEntry) -> str | None:
    """Why the stage cannot start right now: somebody computes it, or uses its GPUs."""
    if run.store.holder(entry.identity) is not None:
        return f"is being computed by {run.store.holder_text(entry.identity)}"
    in_use = gpu_in_use(gpus_of(entry.spec))
    return f"needs GPUs, and {in_use}" if in_use else None


def _done(run: Run, entry: PlanEntry, place: Place) -> bool:
    store = run.store
    manifest = store.verify(entry.identity)
    if manifest is None:
        if store.damaged(entry.identity) and store.holder(entry.identity) is None:
            aside = store.set_aside(entry.identity)
            log.warning("%s is damaged and will be computed again; kept as %s", entry.name, aside)
        return False
    stale = store.stale_inputs(entry.identity)
    if stale:
        aside = store.set_aside(entry.identity)
        log.warning(
            "%s was computed from other bytes of %s and will be computed again; kept as %s",
            entry.name,
            ", ".join(stale),
            aside,
        )
    elif manifest.retired and entry.identity in run.must_run():
        aside = store.set_aside(entry.identity)
        log.warning(
            "%s was retired in part by `anchorloop clean`, a later stage needs it, and so it will "
            "be computed again; what was left is kept as %s",
            entry.name,
            aside,
        )
        return False
    return not stale


def _job(run: Run, entry: PlanEntry, place: Place) -> Job:
    attempt = run.store.attempt(entry.identity) + 1
    return Job(
        stage=entry.spec.stage,
        spec=place.spec,
        out=place.root,
        log=place.work / "logs" / f"attempt_{attempt}" / "output.log",
        run=run.name,
        run_id=run.settings.uid,
    )


def _launch(run: Run, entry: PlanEntry, place: Place, watch: "_Watch") -> None:
    place.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry.spec.save(place.spec)
    job = _job(run, entry, place)
    if run.launcher.name == "local":
        job = replace(job, python=_python(entry))
    before = _stamp(place.failure)
    _see_through(run, entry, run.launcher.start(job), watch, before)


def _see_through(
    run: Run,
    entry: PlanEntry,
    running: Running,
    watch: "_Watch",
    before: tuple[int, int] | None,
) -> None:
    """Watch a started stage to its end; ``before`` is the stamp of an older failure.json."""
    try:
        status = watch.until_it_ends(running, run.settings.stage_hours * 3600)
    finally:
        running.stop()
    if status == STATUS_TAKEN:
        return  # somebody began it at the same moment: it is waited for, or refused, as busy
    if status is None:
        message = f"it ran longer than {run.settings.stage_hours:g} hours (--stage-hours)"
        raise StageFailed(entry, "interrupted", message, running.log)
    if status != 0 or run.store.verify(entry.identity) is None:
        if running.out_of_memory:
            message = f"it was killed for want of memory. {MEMORY_ADVICE}"
            raise StageFailed(entry, "out_of_memory", message, running.log)
        kind, message, again = _failure(run.store.place(entry.identity), before, status)
        raise StageFailed(entry, kind, message, running.log, again)


def _python(entry: PlanEntry) -> str:
    """The interpreter of a stage: this one, or that of the environment its backend needs."""
    if entry.spec.config.get("trainer", {}).get("backend") != "verl":
        return sys.executable
    name = entry.spec.runtime["trainer"]["python"]
    path = interpreter(name)
    if not path.is_file():
        message = f"trainer.python '{name}' is not there; build verl's environment (docs/gpu.md)"
        raise StageFailed(entry, "config", message, None)
    return str(path)


def _failure(place: Place, before: tuple[int, int] | None, status: int) -> tuple[str, str, bool]:
    """Kind, message, and whether to try again at once."""
    if _stamp(place.failure) not in (None, before):
        try:
            raw = json.loads(place.failure.read_text(encoding="utf-8"))
            return str(raw["kind"]), str(raw["message"]), bool(raw["again"])
        except (OSError, ValueError, KeyError):
            pass
    if status == STATUS_DISK_FULL:
        return "infra", f"the disk is full; {REMEDY}", False
    if status == -9:
        return "interrupted", "its process was killed (by a person, or for want of memory)", True
    if status < 0:
        return "bug", f"its process died of signal {-status}", True
    if status == 0:
        return "bug", "it ended without a complete artifact", True
    return "bug", f"it ended with status {status} and left no reason", True


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


class _Watch:
    """Passes on what a stage writes while it runs."""

    def __init__(
        self, run: Run, entry: PlanEntry, place: Place, show: Show | None, warn: Warn | None
    ) -> None:
        self._run, self._entry, self._place = run, entry, place
        self._show, self._warn = show, warn
        self._part = child(entry.spec.iteration)
        self._tail = StepTail(place.work / "metrics.jsonl", self._sink)
        self._alarms = StepTail(place.work / ALARMS, self._alarm)
        self._raised: set[Alarm] = set()
        self._shown: Progress | None = None
        self._busy = ""

    def until_it_ends(self, running: Running, limit_s: float) -> int | None:
        """Watch until the process ends (its status) or the time is over (None)."""
        deadline = time.monotonic() + limit_s
        while (status := running.wait(LOOK_S)) is None and time.monotonic() < deadline:
            self.look()
        self.look(force=True)
        return status

    def wait_for(self, busy: str) -> None:
        """One look while somebody else is in the way. StageFailed where the run refuses to wait."""
        if self._run.settings.on_busy == "refuse":
            raise StageFailed(self._entry, "interrupted", f"it {busy} (--on-busy refuse)", None)
        if busy != self._busy:
            log.info("%s %s; waiting for it", self._entry.name, busy)
            self._busy = busy
        self.look()
        time.sleep(LOOK_S)

    def look(self, force: bool = False) -> None:
        """Read all files; ``force`` at the end of the stage."""
        self._tail.read()
        self._alarms.read()
        progress = read_progress(self._place.work)
        if self._show and progress is not None and (force or progress != self._shown):
            self._shown = progress
            self._show(progress)

    def _sink(self, step: int, values: Mapping[str, Any]) -> None:
        kept = stage_values(self._entry.spec.stage, values)
        self._run.tracker.metrics(self._part, step, kept)

    def _alarm(self, step: int, values: Mapping[str, Any]) -> None:
        alarm = Alarm(step=step, **values)
        if alarm in self._raised:  # a resumed stage repeats them
            return
        self._raised.add(alarm)
        where = f"{self._entry.name}, step {step}"
        log.warning("%s alarm %s at %s: %s", alarm.level, alarm.name, where, alarm.sentence)
        tag = {f"alarm.{alarm.name}": f"{where}, {alarm.level}: {alarm.sentence}"}
        for part in (self._part, PARENT):
            self._run.tracker.tags(part, tag)
        if self._warn:
            self._warn(alarm)
