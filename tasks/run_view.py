"""A run as its files show it: every stage with its state, and why it stopped. No server is asked.

The plan comes from plan.json, so a run is shown as it began, whatever the code has become since.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tasks.home import Home
from tasks.runs import driver, read_lines
from tasks.summary import read_summary
from tasks.watch import Progress, read_alarms, read_progress
from training.algorithms.alarms import Alarm
from training.spec import StageSpec
from training.store import MANIFEST, Place, Store

StageState = Literal["computed", "reused", "there", "removed", "running", "failed", "waiting"]
DONE: frozenset[StageState] = frozenset({"computed", "reused", "removed"})
"""States of a stage that the run is through with."""
RunState = Literal["new", "running", "stopped", "finished"]


@dataclass(frozen=True)
class Failure:
    """Why the last attempt of a stage ended: failure.json, and the log of that attempt."""

    kind: str
    message: str
    log: Path | None


@dataclass(frozen=True)
class StageView:
    """A stage of the plan.

    `made_from` names its inputs: a stage of the same iteration plainly, others with theirs.
    `there` means that its artifact exists and the run has not come to it, `removed` that the run
    had it and it is no longer in the store. `seconds` is what it
    cost, or has taken so far in this attempt while it runs.
    """

    iteration: int
    stage: str
    identity: str
    made_from: tuple[str, ...]
    state: StageState
    seconds: float | None = None
    progress: Progress | None = None
    alarms: list[Alarm] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def name(self) -> str:
        """``i{iteration}/{stage}``."""
        return f"i{self.iteration}/{self.stage}"


@dataclass(frozen=True)
class RunView:
    """A run: what it is doing, its stages in order, its numbers where it has any."""

    name: str
    state: RunState
    stages: list[StageView]
    summary: Mapping[str, Any] | None

    @property
    def running(self) -> StageView | None:
        """The stage that is being computed."""
        return next((stage for stage in self.stages if stage.state == "running"), None)

    @property
    def failed(self) -> StageView | None:
        """The stage that stopped the run."""
        return next((stage for stage in self.stages if stage.state == "failed"), None)


def view_run(home: Home, folder: Path) -> RunView:
    """Read a run's folder and the store. A run that never began has no stages."""
    store = Store(home.store)
    plan = _read(folder / "plan.json")
    specs = [StageSpec(**raw) for raw in plan.values()]
    specs.sort(key=lambda spec: spec.iteration)  # within one, plan.json has no order to keep
    recorded: dict[str, dict[str, Any]] = {}
    for line in read_lines(folder / "stages.jsonl"):
        recorded.setdefault(line["identity"], line)
    driven = driver(folder) is not None
    current = _read(folder / "current.json").get("identity")
    ordered = _ordered(specs)
    by_identity = {identity: spec for spec, identity in ordered}
    stages = []
    for spec, identity in ordered:
        place = store.place(identity)
        view = StageView(
            iteration=spec.iteration,
            stage=spec.stage,
            identity=identity,
            made_from=_inputs(spec, by_identity),
            state="waiting",
            alarms=read_alarms(place.work),
        )
        held = store.holder(identity) is not None or (driven and current == identity)
        stages.append(_stage(view, place, recorded.get(identity), held))
    return RunView(folder.name, _state(driven, stages), stages, read_summary(folder))


def _ordered(specs: list[StageSpec]) -> list[tuple[StageSpec, str]]:
    """Stages by iteration, each behind what it is made from."""
    waiting = [(spec, spec.identity) for spec in specs]
    own = {identity for _, identity in waiting}
    done: set[str] = set()
    ordered: list[tuple[StageSpec, str]] = []
    while waiting:
        for item in waiting:
            if all(i in done or i not in own for i in item[0].inputs.values()):
                break
        waiting.remove(item)
        done.add(item[1])
        ordered.append(item)
    return ordered


def _state(driven: bool, stages: list[StageView]) -> RunState:
    if driven:
        return "running"
    states = {stage.state for stage in stages}
    if states <= {"waiting", "there"}:
        return "new"
    return "finished" if states <= DONE else "stopped"


def _inputs(spec: StageSpec, stages: Mapping[str, StageSpec]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for identity in spec.inputs.values():
        source = stages.get(identity)
        if source is not None:
            here = source.iteration == spec.iteration
            found[source.stage if here else f"{source.stage}(i{source.iteration})"] = None
    return tuple(found)


def _stage(
    view: StageView, place: Place, recorded: Mapping[str, Any] | None, held: bool
) -> StageView:
    """The view with its state: what the store has comes first, then who works on it."""
    if (place.artifact / MANIFEST).is_file():
        if recorded is None:
            return replace(view, state="there")
        state: StageState = "reused" if recorded["reused"] else "computed"
        return replace(view, state=state, seconds=recorded["cost_seconds"])
    if held:
        return replace(
            view,
            state="running",
            seconds=_since(_attempt(place)),
            progress=read_progress(place.work),
        )
    failure = _failure(place)
    if failure is not None:
        return replace(view, state="failed", failure=failure)
    if recorded is not None:
        return replace(view, state="removed", seconds=recorded["cost_seconds"])
    return view


def _failure(place: Place) -> Failure | None:
    raw = _read(place.failure)
    if not raw:
        return None
    attempt = _attempt(place)
    log = None if attempt is None else attempt / "output.log"
    return Failure(str(raw["kind"]), str(raw["message"]), log)


def _attempt(place: Place) -> Path | None:
    """Log folder of the newest attempt."""
    folders = (place.work / "logs").glob("attempt_*")
    return max(folders, key=lambda folder: int(folder.name[8:]), default=None)


def _since(attempt: Path | None) -> float | None:
    try:
        started = float((attempt / "started").read_text(encoding="utf-8")) if attempt else None
    except (OSError, ValueError):
        return None
    return None if started is None else max(0.0, time.time() - started)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
