"""Runs beside each other: which parameters differ, and scores by iteration over their seeds.

Runs whose configurations differ in nothing but the seed are one group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tasks.figures import Curves, Point
from tasks.home import Home
from tasks.runs import RunError, read_settings, stored_config
from tasks.summary import read_summary
from tasks.tracking import flatten
from training.config import ExperimentConfig, identity_dump

SEED = "seed"
_NO_RESULT = ("iterations", "gate.min_mean_at_k", "gate.max_top_answer_share")
"""Parameters that say how far a run goes, and change no number on the way."""
_NAMES = ("profile", "method")


@dataclass(frozen=True)
class RunRecord:
    """A run that has numbers: its parameters by dotted name, and the rows of its summary."""

    name: str
    seed: int
    parameters: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Group:
    """Runs that are equal but for their seeds; `label` tells the groups apart."""

    label: str
    runs: Sequence[RunRecord]

    @property
    def seeds(self) -> list[int]:
        """Their seeds, sorted."""
        return sorted(run.seed for run in self.runs)


def read_run(place: Home, name: str) -> RunRecord:
    """A run by its name. Raises RunError where there is none, or it has no numbers yet."""
    try:
        folder: Path = place.run(name)
    except ValueError as error:
        raise RunError(str(error)) from None
    read_settings(folder)
    config, summary = stored_config(folder), read_summary(folder)
    rows = summary["iterations"] if summary else []
    if not rows:
        raise RunError(f"run '{name}' has no finished iteration yet, so nothing to compare")
    return RunRecord(name, config.seed, _parameters(config), rows)


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Groups in the order of their first runs, labelled by method, and by more where need be.

    Of two runs of a group with one seed, which have the same numbers, the longer one is kept.
    """
    together: dict[str, dict[int, RunRecord]] = {}
    for run in runs:
        told = {k: repr(v) for k, v in run.parameters.items() if k not in (SEED, *_NO_RESULT)}
        seeds = together.setdefault(repr(sorted(told.items())), {})
        if run.seed not in seeds or len(seeds[run.seed].rows) < len(run.rows):
            seeds[run.seed] = run
    groups = [list(seeds.values()) for seeds in together.values()]
    firsts = [group[0] for group in groups]
    return [Group(_label(group[0], firsts), group) for group in groups]


def differing(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Parameters that are not the same in all runs, with the value of each (None: not set)."""
    keys = sorted({key for run in runs for key in run.parameters})
    values = {key: [run.parameters.get(key) for run in runs] for key in keys}
    return {key: found for key, found in values.items() if any(v != found[0] for v in found)}


def scores(groups: Sequence[Group]) -> list[str]:
    """Accuracies that every group has: greedy, and mean@k of each k."""
    found = [{key for run in group.runs for row in run.rows for key in row} for group in groups]
    common = set.intersection(*found) if found else set()
    means = sorted(
        (key for key in common if key.startswith("mean_at_")), key=lambda key: int(key[8:])
    )
    known = [key for key in ("greedy", *means) if key in common]
    return [key for key in known if all(curves(groups, key).values())]


def curves(groups: Sequence[Group], score: str) -> Curves:
    """Mean and sample standard deviation of a score over the seeds, by iteration and group."""
    return {group.label: _points(group, score) for group in groups}


def accuracy_charts(summary: Mapping[str, Any]) -> dict[str, Curves]:
    """Scores of one run by iteration, each a chart of one line."""
    run = RunRecord(summary["run"], summary["seed"], {}, summary["iterations"])
    group = Group(summary["method"], [run])
    return {score: curves([group], score) for score in scores([group])}


def accuracy_title(summary: Mapping[str, Any]) -> str:
    """What the figure of a run is called."""
    return f"{summary['run']}: {summary['method']} on {summary['profile']}, seed {summary['seed']}"


def _points(group: Group, score: str) -> list[Point]:
    values: dict[int, list[float]] = {}
    for run in group.runs:
        for row in run.rows:
            if row.get(score) is not None:
                values.setdefault(row["iteration"], []).append(row[score])
    return [
        Point(t, fmean(found), stdev(found) if len(found) > 1 else None)
        for t, found in sorted(values.items())
    ]


def _parameters(config: ExperimentConfig) -> dict[str, Any]:
    """What can change a result; what is only recorded is left out, but for the names."""
    return {**flatten(identity_dump(config)), **{key: getattr(config, key) for key in _NAMES}}


def _label(run: RunRecord, others: Sequence[RunRecord]) -> str:
    """The method; where others share it, with the few parameters that tell them apart, and where
    those are many, with the name of the run."""
    method = run.parameters["method"]
    namesakes = [other for other in others if other.parameters["method"] == method]
    if len(namesakes) == 1:
        return str(method)
    extra = [key for key in differing(namesakes) if key not in (SEED, *_NO_RESULT)]
    if len(extra) > 2:
        return f"{method} ({run.name})"
    return ", ".join([str(method), *(f"{key}={run.parameters.get(key)}" for key in extra)])
