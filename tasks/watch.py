"""Follow a stage by the files it writes: metrics.jsonl, alarms.jsonl and progress.json."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.algorithms.alarms import Alarm
from training.stages.alarm_log import ALARMS


@dataclass(frozen=True)
class Progress:
    """How far a stage is: ``done`` of ``total`` units, ``rate`` units a second; ``eta_s`` in
    seconds, None if unknown."""

    done: float
    total: float
    unit: str
    eta_s: float | None
    message: str
    rate: float = 0.0

    @property
    def share(self) -> float:
        """Share done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    def __str__(self) -> str:
        left = "" if self.eta_s is None else f", about {duration(self.eta_s)} left"
        speed = f", {self.rate:.2g} {self.unit}/s" if self.rate > 0 else ""
        note = f", {self.message}" if self.message else ""
        return f"{self.done:g} of {self.total:g} {self.unit}{speed}{left}{note}"


def duration(seconds: float) -> str:
    """Seconds as a person reads them: ``0.4 s``, ``42 s``, ``3 min 20 s``, ``5 h 7 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def read_progress(work: Path) -> Progress | None:
    """The stage's last report, or None before the first."""
    try:
        raw = json.loads((work / "progress.json").read_text(encoding="utf-8"))
        return Progress(
            raw["done"],
            raw["total"],
            raw["unit"],
            raw.get("eta_s"),
            raw.get("message", ""),
            raw.get("rate", 0.0),
        )
    except (OSError, ValueError, KeyError):
        return None


def read_alarms(work: Path) -> list[Alarm]:
    """The alarms of a stage so far; a line that is still being written is left out."""
    found: list[Alarm] = []
    StepTail(work / ALARMS, lambda step, values: found.append(Alarm(step=step, **values))).read()
    return found


class StepTail:
    """Hands each complete new line of a file such as metrics.jsonl to a sink, by its ``step``.

    A resumed stage cuts the file back and repeats steps: then it is read from the start, and the
    sink has to know what it has already.
    """

    def __init__(self, path: Path, sink: Callable[[int, Mapping[str, Any]], None]) -> None:
        self._path, self._sink = path, sink
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def read(self) -> None:
        """Read what is new."""
        try:
            with self._path.open("rb") as handle:
                self._restart_if_replaced(handle.fileno())
                handle.seek(self._offset)
                content = handle.read()
        except FileNotFoundError:
            return
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        for line in content[:whole].splitlines():
            try:
                values = json.loads(line)
                step = int(values.pop("step"))
            except (ValueError, KeyError, AttributeError, TypeError):
                continue
            self._sink(step, values)

    def _restart_if_replaced(self, descriptor: int) -> None:
        stat = os.fstat(descriptor)
        if self._file != (stat.st_dev, stat.st_ino) or stat.st_size < self._offset:
            self._file, self._offset = (stat.st_dev, stat.st_ino), 0
