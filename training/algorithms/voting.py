"""Counting the answers of one group (paper eqs. 1 and 7; docs/method.md section 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Vote:
    """The vote of one complete group of ``size`` trajectories.

    ``label`` is the unique most frequent label, or None when the group is unresolved:
    a tie at the top, or no valid answer. ``top`` is the highest count, defined under a tie too.
    """

    counts: dict[str, int]
    size: int
    label: str | None
    top: int

    @property
    def resolved(self) -> bool:
        """Whether one label has the unique highest count."""
        return self.label is not None

    @property
    def agreement(self) -> float:
        """Share of the group that gave the majority answer (eq. 13); 0 if unresolved."""
        return self.top / self.size if self.resolved else 0.0

    @property
    def p_max(self) -> float:
        """Highest count over the group size (eq. 7), under a tie too; 0 without valid answers."""
        return self.top / self.size


def vote(labels: Sequence[str | None]) -> Vote:
    """Count the canonical labels of one group; None stands for an invalid or missing answer.

    Entries that are None don't vote but stay in ``size``.
    Raises ValueError for an empty group and for an empty label, which could only be a parser bug.
    """
    if not labels:
        raise ValueError("a group needs at least one trajectory, got none")
    if "" in labels:
        raise ValueError("an empty label cannot vote; an unreadable answer must be None")
    counts = Counter(label for label in labels if label is not None)
    top = max(counts.values(), default=0)
    leaders = [label for label, count in counts.items() if count == top]
    return Vote(
        counts=dict(counts),
        size=len(labels),
        label=leaders[0] if len(leaders) == 1 else None,
        top=top,
    )
