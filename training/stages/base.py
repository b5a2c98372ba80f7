"""What every stage is given, and what it hands back."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from training.algorithms.alarms import Limits
from training.config import Alarms, Curriculum, ExperimentConfig, Rollout
from training.errors import InfraError, NumericError
from training.parts import needed_part
from training.spec import StageSpec
from training.stages.alarm_log import ALARMS, alarm_limits, note_alarms
from training.store import Place, Store, write_atomic

SectionT = TypeVar("SectionT", bound=BaseModel)

SECTION_NAMES: dict[Any, str] = {
    model_field.annotation: name for name, model_field in ExperimentConfig.model_fields.items()
}


@dataclass(frozen=True)
class StageResult:
    """The headline numbers of a finished stage and the proof that it did all its steps."""

    metrics: dict[str, float | int | None]
    planned_steps: int = 1
    final_step: int = 1
    details: dict[str, Any] = field(default_factory=dict)
    """Anything else worth keeping in result.json, such as source and licence of weights."""


class StageContext:
    """A stage's view of the world: its config, its inputs, its folders, its reports.

    Metrics and progress are appended to files, which are the truth; whoever watches reads them.
    """

    def __init__(self, spec: StageSpec, store: Store, attempt: int) -> None:
        self.spec = spec
        self.attempt = attempt
        self._store = store
        self._place: Place = store.place(spec.identity)
        self._started = time.monotonic()
        self._done_before: int | None = None
        self._digests: dict[str, dict[str, str]] = {}

    @property
    def seed(self) -> int:
        """The experiment's seed; derive all others from it by ``training.seeds``."""
        return self.spec.seed

    @property
    def iteration(self) -> int:
        """The outer iteration t (0 = base)."""
        return self.spec.iteration

    @property
    def work(self) -> Path:
        """Folder for checkpoints and other things that survive attempts."""
        return self._place.work

    @property
    def payload(self) -> Path:
        """Folder whose contents are published when the stage returns. Its bytes must not depend
        on time: timings belong into metrics."""
        return self._place.payload

    def section(self, model: type[SectionT]) -> SectionT:
        """A section of the configuration. KeyError for one that is not in the stage's spec."""
        name = SECTION_NAMES[model]
        return model.model_validate(
            _merged(self.spec.config[name], self.spec.runtime.get(name, {}))
        )

    def input(self, name: str) -> Path:
        """Artifact folder of an input, every byte of it verified.

        InfraError when it is missing or damaged, or what this stage reads of it was retired.
        """
        identity = self.spec.inputs[name]
        manifest = self._store.verify(identity, full=name not in self._digests)
        if manifest is None:
            raise InfraError(
                f"input '{name}' ({identity[:12]}) is missing or its bytes do not match its "
                "manifest; retry the run, which rebuilds it"
            )
        part = needed_part(self.spec.stage, name)
        if part in manifest.retired_parts:
            raise InfraError(
                f"the {part} of input '{name}' ({identity[:12]}) were retired by `anchorloop "
                "clean`; start the run again, which computes them anew"
            )
        self._digests[name] = {"identity": identity, "payload_sha256": manifest.payload_sha256}
        return self._store.place(identity).artifact

    def has_input(self, name: str) -> bool:
        """Whether the plan gave the stage this input."""
        return name in self.spec.inputs

    def file(self, name: str) -> Path:
        """A template or data file named in the spec."""
        return Path(self.spec.paths[name])

    @property
    def inputs_used(self) -> dict[str, dict[str, str]]:
        """Identity and payload digest of every input that was read."""
        return dict(self._digests)

    def log_metrics(self, step: int, metrics: Mapping[str, float | int | None]) -> None:
        """Append one line of metrics at an inner step, and note the alarms that it raises.

        Raises NumericError for NaN or infinity, and for a collapse that has lasted too long.
        """
        for key, value in metrics.items():
            if isinstance(value, float) and (
                value != value or value in (float("inf"), -float("inf"))
            ):
                raise NumericError(f"{key} became {value} at step {step}; training was stopped")
        path = self.work / "metrics.jsonl"
        line = json.dumps({"step": step, **metrics}, sort_keys=True)
        with path.open("a", encoding="utf-8") as handle:
            handle.write(line + "\n")
        if "alarms" in self.spec.config:
            note_alarms(self.work, read_jsonl(path), self._alarm_limits)

    @cached_property
    def _alarm_limits(self) -> Limits:
        rewarded = self.section(Curriculum) if self.spec.stage == "curriculum" else None
        return alarm_limits(self.section(Alarms), self.section(Rollout), rewarded)

    def resume_metrics(self, step: int) -> None:
        """Cut metrics and alarms back to what was known after ``step`` steps (those below stay)."""
        truncate_jsonl(self.work / "metrics.jsonl", step)
        truncate_jsonl(self.work / ALARMS, step)

    def progress(self, done: int, total: int, unit: str = "steps", message: str = "") -> None:
        """Say how far the stage is; rate and time left follow from this attempt alone."""
        if self._done_before is None:
            self._done_before = done
            self._started = time.monotonic()
        elapsed = time.monotonic() - self._started
        rate = (done - self._done_before) / elapsed if elapsed > 0 else 0.0
        report = {
            "done": done,
            "total": total,
            "unit": unit,
            "rate": rate,
            "eta_s": (total - done) / rate if rate > 0 else None,
            "message": message,
        }
        write_atomic(self.work / "progress.json", json.dumps(report))


def truncate_jsonl(path: Path, step: int) -> None:
    """Keep the lines of a JSON-lines file whose ``step`` is below ``step``; drop torn ones."""
    if not path.exists():
        return
    kept = []
    with path.open(encoding="utf-8") as handle:
        for line in handle:
            try:
                if line.endswith("\n") and json.loads(line)["step"] < step:
                    kept.append(line)
            except ValueError:  # the line a kill cut short
                continue
    write_atomic(path, "".join(kept))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON-lines file."""
    with path.open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a JSON-lines file, one sorted object a line."""
    with path.open("w", encoding="utf-8") as handle:
        for record in records:
            handle.write(json.dumps(record, sort_keys=True, ensure_ascii=False) + "\n")


def _merged(identity_part: dict[str, Any], runtime_part: dict[str, Any]) -> dict[str, Any]:
    out = dict(identity_part)
    for key, value in runtime_part.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = _merged(out[key], value)
        else:
            out[key] = value
    return out
