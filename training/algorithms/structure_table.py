"""The structure of the historical advantage over a run (docs/method.md section 6, appendix D.1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.algorithms.cross_reference import structure
from training.algorithms.voting import vote

THIRDS = ("early", "middle", "late")


@dataclass(frozen=True)
class MatchedGroups:
    """The labels of a task's current and anchor group at one Executor step (from 0)."""

    step: int
    current: Sequence[str | None]
    anchor: Sequence[str | None]


@dataclass(frozen=True)
class StructureRow:
    """Counts of one third; they add up over runs. The last three partition ``valid``."""

    candidates: int = 0
    valid: int = 0
    same_majority: int = 0
    zero: int = 0
    collinear: int = 0
    non_collinear: int = 0

    def __add__(self, other: StructureRow) -> StructureRow:
        return StructureRow(
            self.candidates + other.candidates,
            self.valid + other.valid,
            self.same_majority + other.same_majority,
            self.zero + other.zero,
            self.collinear + other.collinear,
            self.non_collinear + other.non_collinear,
        )

    def percent(self, count: int) -> float | None:
        """Return a count of this row in per cent of its valid groups."""
        return 100.0 * count / self.valid if self.valid else None


def structure_table(
    groups: Sequence[MatchedGroups], *, steps: int, group_size: int, seed: int, sample: int = 120
) -> dict[str, StructureRow]:
    """Return the structure of the historical advantage in each third of one run's Executor steps.

    ``steps`` is the number of Executor steps of the stage. Each third gives up to ``sample``
    candidates, drawn with ``seed``. A candidate is valid when both its groups hold ``group_size``
    records and are resolved. Raises ValueError for a step outside [0, steps).
    """
    thirds: list[list[MatchedGroups]] = [[], [], []]
    for group in groups:
        if not 0 <= group.step < steps:
            raise ValueError(f"step {group.step} is outside a stage of {steps} steps")
        thirds[3 * group.step // steps].append(group)
    draw = random.Random(seed)
    table = {}
    for name, members in zip(THIRDS, thirds, strict=True):
        chosen = draw.sample(members, min(sample, len(members)))
        table[name] = sum((_row(group, group_size) for group in chosen), StructureRow())
    return table


def _row(group: MatchedGroups, group_size: int) -> StructureRow:
    if len(group.current) != group_size or len(group.anchor) != group_size:
        return StructureRow(candidates=1)
    current, anchor = vote(group.current).label, vote(group.anchor).label
    if current is None or anchor is None:
        return StructureRow(candidates=1)
    kind = structure(group.current, current, anchor)
    return StructureRow(
        candidates=1,
        valid=1,
        same_majority=int(current == anchor),
        zero=int(kind == "zero"),
        collinear=int(kind == "collinear"),
        non_collinear=int(kind == "non_collinear"),
    )
