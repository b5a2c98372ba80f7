"""What the paper plots and tabulates about a run (docs/method.md section 6).

A mean or share over nothing is None, so that an empty stage shows as a blank and not as 0.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from training.algorithms.voting import Vote


def v_adv(groups: Sequence[Sequence[float] | None]) -> float | None:
    """Return the mean population variance of the effective advantage within a group (4.3).

    One entry a sampled Executor group: its G effective advantages, or None for an unresolved
    group, which adds 0 and stays in the denominator.
    """
    return _mean([0.0 if group is None else _variance(group) for group in groups])


def positive_gap_share(pairs: Sequence[tuple[Vote, Vote] | None]) -> float | None:
    """Return the share of candidates whose current agreement exceeds the reference's.

    One entry a candidate: (current, reference), or None if it is format-invalid. Those and
    unresolved pairs are not positive and stay in the denominator.
    """
    positive = [
        pair is not None
        and pair[0].resolved
        and pair[1].resolved
        and pair[0].top * pair[1].size > pair[1].top * pair[0].size
        for pair in pairs
    ]
    return _mean([float(p) for p in positive])


def unresolved_share(votes: Sequence[Vote]) -> float | None:
    """Return the share of groups without a majority answer."""
    return _mean([float(not v.resolved) for v in votes])


def top_answer_share(labels: Sequence[str | None]) -> float | None:
    """Return the share of the most frequent label; one label a task, unresolved ones (None) out.

    Close to 1 it says that the Executor answers every task alike.
    """
    known = [label for label in labels if label is not None]
    return max(Counter(known).values()) / len(known) if known else None


def distinct_share(problems: Sequence[str | None]) -> float | None:
    """Return distinct problem texts over all of them, white space apart; None entries are out."""
    keys = [" ".join(problem.split()) for problem in problems if problem is not None]
    return len(set(keys)) / len(keys) if keys else None


@dataclass(frozen=True)
class EvolutionPoint:
    """One point of the curriculum-evolution figure, over all trajectories of one task pool."""

    agreement: float
    tool_calls: float
    trajectories: int


def sample_tasks(n_tasks: int, wanted: int, seed: int) -> list[int]:
    """Return up to ``wanted`` task indices in ascending order, the same ones for the same seed."""
    return sorted(random.Random(seed).sample(range(n_tasks), min(wanted, n_tasks)))


def evolution_point(groups: Sequence[tuple[Vote, Sequence[int]]]) -> EvolutionPoint | None:
    """Return mean agreement reward and mean executed calls over the same trajectories.

    One entry a task: the vote of its G trajectories and their uncapped calls. Every trajectory of
    an unresolved group has reward 0. Raises ValueError where calls and group size differ.
    """
    for group, calls in groups:
        if len(calls) != group.size:
            raise ValueError(f"{len(calls)} tool-call counts for a group of {group.size}")
    trajectories = sum(group.size for group, _ in groups)
    if not trajectories:
        return None
    agreeing = sum(group.top for group, _ in groups if group.resolved)
    calls_made = sum(sum(calls) for _, calls in groups)
    return EvolutionPoint(agreeing / trajectories, calls_made / trajectories, trajectories)


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _variance(values: Sequence[float]) -> float:
    mean = fsum(values) / len(values)
    return fsum((value - mean) ** 2 for value in values) / len(values)
