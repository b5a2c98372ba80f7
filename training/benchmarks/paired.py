"""Two models on the same questions: paired difference, interval and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np

from training.benchmarks.metrics import bootstrap

_FLIPS = 10_000


@dataclass(frozen=True)
class Paired:
    """`difference` is second minus first in [-1, 1], over the `n` questions both answered.

    `unmatched` counts questions only one of them answered. `p_value` is two-sided: exact McNemar
    where every question is right or wrong, else a sign-flip permutation test with `test` naming
    which. `interval` is the 95 % bootstrap interval of the difference.
    """

    n: int
    unmatched: int
    difference: float
    interval: tuple[float, float]
    wins: int
    losses: int
    p_value: float
    test: str


def compare(first: Mapping[str, float], second: Mapping[str, float], seed: int = 0) -> Paired:
    """Compare per-question scores of two models.

    Raises:
        ValueError: they share no question.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise ValueError("the two models share no question, so nothing can be paired")
    gains = [second[q] - first[q] for q in shared]
    wins, losses = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    binary = all(v in (0.0, 1.0) for q in shared for v in (first[q], second[q]))
    return Paired(
        n=len(shared),
        unmatched=len(first.keys() ^ second.keys()),
        difference=float(np.mean(gains)),
        interval=bootstrap(gains, seed),
        wins=wins,
        losses=losses,
        p_value=mcnemar(wins, losses) if binary else sign_flip(gains, seed),
        test="exact McNemar" if binary else "sign-flip permutation",
    )


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of `wins` against `losses` under a fair coin."""
    trials = wins + losses
    if trials == 0:
        return 1.0
    tail = sum(comb(trials, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**trials)


def sign_flip(gains: list[float], seed: int) -> float:
    """Two-sided permutation p-value: how often random signs give a sum at least as far from 0."""
    data = np.asarray(gains, dtype=np.float64)
    observed = abs(data.sum())
    generator = np.random.default_rng(seed)
    reached = 1  # the observed signs are one of the permutations
    for _ in range(_FLIPS):
        signs = generator.integers(0, 2, len(data)) * 2 - 1
        reached += bool(abs((signs * data).sum()) >= observed - 1e-12)
    return reached / (_FLIPS + 1)
