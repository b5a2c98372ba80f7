"""Centring and scaling within a group (paper eq. 2; docs/method.md section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from training.errors import NumericError

Deviation = Literal["sample", "population"]
"""Divide the squared deviations by n - 1 (``sample``) or by n (``population``)."""

EPSILON = 1e-6
"""Added to the standard deviation before dividing."""


def normalise(
    values: Sequence[float], std: Deviation = "sample", eps: float = EPSILON
) -> list[float]:
    """Return (v - mean) / (std + eps) for every value, in float64.

    Equal values give exact zeros, decided by comparison and not by a rounded deviation, so a
    unanimous group carries no gradient at all. A single value is such a group.
    Raises NumericError for a value that is not finite, and ValueError for no values or an unknown
    ``std``.
    """
    if std not in ("sample", "population"):
        raise ValueError(f"std must be 'sample' or 'population', got {std!r}")
    if not values:
        raise ValueError("cannot normalise an empty group")
    if not all(math.isfinite(value) for value in values):
        raise NumericError(f"cannot normalise values that are not finite: {list(values)}")
    n = len(values)
    if all(value == values[0] for value in values):
        return [0.0] * n
    mean = math.fsum(values) / n
    centred = [value - mean for value in values]
    divisor = n - 1 if std == "sample" else n
    deviation = math.sqrt(math.fsum(c * c for c in centred) / divisor)
    return [c / (deviation + eps) for c in centred]
