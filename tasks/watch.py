"""Follow a stage by the two files it writes: metrics.jsonl and progress.json."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Progress:
    """How far a stage is: ``done`` of ``total`` units; ``eta_s`` in seconds, None if unknown."""

    done: float
    total: float
    unit: str
    eta_s: float | None
    message: str

    @property
    def share(self) -> float:
        """Share done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    def __str__(self) -> str:
        left = "" if self.eta_s is None else f", about {self.eta_s:.0f} s left"
        note = f", {self.message}" if self.message else ""
        return f"{self.done:g} of {self.total:g} {self.unit}{left}{note}"


def read_progress(work: Path) -> Progress | None:
    """The stage's last report, or None before the first."""
    try:
        raw = json.loads((work / "progress.json").read_text(encoding="utf-8"))
        return Progress(
            raw["done"], raw["total"], raw["unit"], raw.get("eta_s"), raw.get("message", "")
        )
    except (OSError, ValueError, KeyError):
        return None


class MetricsTail:
    """Hands each complete new line of metrics.jsonl to a sink.

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
