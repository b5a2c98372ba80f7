"""The cross-reference advantage and its structure (paper eqs. 4-6, appendix D.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from training.algorithms.group_stats import EPSILON, Deviation, normalise
from training.algorithms.voting import Vote

Structure = Literal["zero", "collinear", "non_collinear"]

ALPHA = 0.6
"""Weight of the historical term in the paper's Table 3."""


@dataclass(frozen=True)
class CrossReference:
    """Both indicators and all advantages of one group; every list has one entry a trajectory.

    ``r_anc`` and ``a_hist`` are None where the historical term is off.
    """

    r_cur: list[int]
    r_anc: list[int] | None
    a_cur: list[float]
    a_hist: list[float] | None
    advantage: list[float]


def indicators(labels: Sequence[str | None], label: str) -> list[int]:
    """Return 1 where a trajectory's label is ``label``, else 0, invalid ones too (eqs. 1, 4)."""
    return [int(own == label) for own in labels]


def cross_reference_advantage(
    labels: Sequence[str | None],
    current: Vote,
    anchor: Vote | None,
    alpha: float = ALPHA,
    std: Deviation = "sample",
    eps: float = EPSILON,
    scale: float = 1.0,
) -> CrossReference:
    """Mix the current and the historical advantage of one group (eqs. 5 and 6).

    ``labels`` are the G labels of the current group and ``current`` is their vote. ``anchor`` is
    the vote of the reference group, or None to switch the historical term off: then the advantage
    is the current one with coefficient 1, whatever ``alpha`` is. ``scale`` multiplies the result;
    the control ``agent0_scaled`` uses 1 - alpha with the historical term off.

    Raises ValueError if a vote is unresolved (such a task is left out of the update and must not
    get here), if ``current`` is the vote of another group, or if ``alpha`` is outside [0, 1].
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha}")
    if current.label is None or (anchor is not None and anchor.label is None):
        raise ValueError("an unresolved group has no advantage; leave its task out of the update")
    r_cur = indicators(labels, current.label)
    if len(labels) != current.size or sum(r_cur) != current.top:
        raise ValueError("the current vote does not belong to these labels")
    a_cur = normalise(r_cur, std, eps)
    if anchor is None or anchor.label is None:
        return CrossReference(r_cur, None, a_cur, None, [scale * a for a in a_cur])
    r_anc = indicators(labels, anchor.label)
    a_hist = normalise([c - a for c, a in zip(r_cur, r_anc, strict=True)], std, eps)
    mixed = [scale * ((1.0 - alpha) * c + alpha * h) for c, h in zip(a_cur, a_hist, strict=True)]
    return CrossReference(r_cur, r_anc, a_cur, a_hist, mixed)


def classify(current: Sequence[int], historical: Sequence[int]) -> Structure:
    """Classify two integer vectors after centring, without tolerance (appendix D.1).

    ``zero``: the centred historical vector vanishes. ``collinear``: both are non-zero and one is
    a positive multiple of the other. ``non_collinear``: the rest, a negative multiple and a zero
    current vector included. Multiplying by n centres in integers, so every test is exact.
    Raises ValueError for lengths that differ and for empty vectors.
    """
    n = len(current)
    if n == 0 or n != len(historical):
        raise ValueError(f"need two vectors of one length, got {n} and {len(historical)}")
    cur = [n * value - sum(current) for value in current]
    hist = [n * value - sum(historical) for value in historical]
    if not any(hist):
        return "zero"
    pivot = next((i for i, value in enumerate(cur) if value), None)
    if pivot is None or cur[pivot] * hist[pivot] <= 0:
        return "non_collinear"
    parallel = all(c * hist[pivot] == h * cur[pivot] for c, h in zip(cur, hist, strict=True))
    return "collinear" if parallel else "non_collinear"


def structure(labels: Sequence[str | None], current_label: str, anchor_label: str) -> Structure:
    """Classify the historical advantage of one resolved pair from its indicator patterns."""
    r_cur = indicators(labels, current_label)
    r_anc = indicators(labels, anchor_label)
    return classify(r_cur, [c - a for c, a in zip(r_cur, r_anc, strict=True)])
