"""What of the store may go, decided from plain facts about runs and artifacts; no disk is touched.

Weights stay where a run may still read them: of its last two iterations, of its best one, of every
anchor, and of whatever a stage that is not done needs. Raw records stay until every run that has
them is finished. A base model always stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from training.parts import Part, needed_part

Kind = Literal[
    "weights",
    "raw",
    "checkpoints",
    "damaged",
    "torn",
    "temporary",
    "containers",
    "tracking",
    "unclaimed",
]
KINDS: dict[Kind, str] = {
    "weights": "weights that no run will read again",
    "raw": "raw records of finished experiments; ledgers and samples stay",
    "checkpoints": "checkpoints and scratch files of published stages",
    "damaged": "damaged or replaced artifacts that were set aside",
    "torn": "files that a killed process left half-written or half-deleted",
    "temporary": "temporary folders whose owner is gone",
    "containers": "containers of stages that nobody drives",
    "tracking": "MLflow runs shown as running that nobody drives (set to KILLED)",
    "unclaimed": "stages that no run names, such as those of a run whose folder was deleted",
}
USUAL: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "unclaimed")
"""What is looked for unless told otherwise: what no run names may still be somebody's."""

LAST = 2
"""Iterations whose weights stay in any case."""
_TRAINED = ("executor", "curriculum")


@dataclass(frozen=True)
class Deletion:
    """One thing that may go. ``bytes`` is 0 where it is no file."""

    kind: Kind
    what: str
    """A path, or a name for what is none."""
    bytes: int
    reason: str
    path: Path | None = None
    identity: str | None = None
    """Whose lock is held meanwhile."""
    retires: tuple[str, ...] = ()
    """Files of that identity's artifact which are no part of it from then on."""


@dataclass(frozen=True)
class StageFact:
    """A stage of a run's plan and what the store has of it."""

    identity: str
    stage: str
    iteration: int
    inputs: Mapping[str, str]
    done: bool
    must_run: bool
    files: Mapping[Part, Mapping[str, int]] = field(default_factory=dict)
    """Part → files of the artifact that are there, with their bytes."""
    score: float | None = None
    """Of an evaluation: held-out mean@k, else greedy."""


@dataclass(frozen=True)
class RunFact:
    """A run and the stages of its plan."""

    name: str
    stages: Sequence[StageFact]

    @property
    def finished(self) -> bool:
        """Whether nothing of it has to run."""
        return not any(stage.must_run for stage in self.stages)


def kept_weights(runs: Iterable[RunFact], spent_anchors: bool = False) -> dict[str, str]:
    """Identity → why its weights stay.

    ``spent_anchors``: those that only anchors of finished iterations name may go.
    """
    kept: dict[str, str] = {}
    for run in runs:
        for stage in run.stages:
            if stage.must_run:
                for name, identity in stage.inputs.items():
                    if needed_part(stage.stage, name) == "weights":
                        kept.setdefault(identity, f"i{stage.iteration}/{stage.stage} needs it")
        iterations = _last(run) | _best(run)
        for stage in run.stages:
            if stage.stage in _TRAINED and stage.iteration in iterations:
                kept.setdefault(stage.identity, f"last or best iteration of {run.name}")
        for stage in run.stages:
            spent = spent_anchors and not stage.must_run and stage.iteration not in iterations
            if stage.stage == "anchor" and not spent:
                kept.setdefault(stage.inputs["executor"], f"anchor of i{stage.iteration}")
    return kept


def kept_raw(runs: Iterable[RunFact]) -> set[str]:
    """Identities whose raw records stay: those of every run that is not finished."""
    return {stage.identity for run in runs if not run.finished for stage in run.stages}


def retire_weights(
    runs: Sequence[RunFact], places: Mapping[str, Path], spent_anchors: bool = False
) -> list[Deletion]:
    """Weights that may go; ``places`` has the artifact folder of each identity."""
    kept = kept_weights(runs, spent_anchors)
    return [
        _retire(stage, "weights", places, f"{name}: superseded, neither best nor needed")
        for name, stage in _distinct(runs)
        if stage.stage in _TRAINED and stage.identity not in kept and stage.files.get("weights")
    ]


def retire_raw(runs: Sequence[RunFact], places: Mapping[str, Path]) -> list[Deletion]:
    """Raw records that may go."""
    kept = kept_raw(runs)
    return [
        _retire(stage, "raw", places, f"{name} is finished")
        for name, stage in _distinct(runs)
        if stage.identity not in kept and stage.files.get("raw")
    ]


def _retire(stage: StageFact, part: Part, places: Mapping[str, Path], reason: str) -> Deletion:
    files = stage.files[part]
    folder = places[stage.identity]
    return Deletion(
        kind=part,
        what=f"{part} of i{stage.iteration}/{stage.stage} ({stage.identity[:12]})",
        bytes=sum(files.values()),
        reason=reason,
        path=folder,
        identity=stage.identity,
        retires=tuple(sorted(files)),
    )


def _distinct(runs: Iterable[RunFact]) -> list[tuple[str, StageFact]]:
    """Every stage that is done, once, with the name of the first run that has it."""
    found: dict[str, tuple[str, StageFact]] = {}
    for run in runs:
        for stage in run.stages:
            if stage.done:
                found.setdefault(stage.identity, (run.name, stage))
    return list(found.values())


def _last(run: RunFact) -> set[int]:
    """The newest iterations of which each trained agent is done, counted for each agent."""
    newest: set[int] = set()
    for agent in _TRAINED:
        done = [s.iteration for s in run.stages if s.stage == agent and s.done]
        newest |= set(sorted(done)[-LAST:])
    return newest


def _best(run: RunFact) -> set[int]:
    scores = {s.iteration: s.score for s in run.stages if s.score is not None}
    most = max(scores.values(), default=None)
    return {iteration for iteration, score in scores.items() if score == most}
