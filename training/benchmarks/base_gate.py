"""The base gate: before a run counts, its base model must score what others report for it.

The reference rows are the untrained rows of the paper's Table 1, in per cent. MATH-500 and GSM8K
are the gate, because they are large and their graders are agreed on; any benchmark can be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from training.benchmarks.metrics import Score

DEFAULT_TOLERANCE = 2.0  # points

PAPER_BASE: dict[tuple[str, bool], dict[str, float]] = {
    ("Qwen3-4B-Base", False): {"math500": 68.6, "gsm8k": 88.5},
    ("Qwen3-4B-Base", True): {"math500": 72.7, "gsm8k": 88.8},
    ("MiMo-7B-Base", False): {"math500": 75.6, "gsm8k": 89.9},
    ("MiMo-7B-Base", True): {"math500": 77.9, "gsm8k": 91.1},
}
"""Reference scores by (backbone, with the Python tool)."""


@dataclass(frozen=True)
class Gate:
    """`comparable` only if every reference benchmark was scored and lies within the tolerance."""

    comparable: bool
    reasons: tuple[str, ...]


def check_base(
    scores: Iterable[Score],
    references: Mapping[str, float],
    tolerance: float = DEFAULT_TOLERANCE,
) -> Gate:
    """Hold the base model's scores against `references` (per cent, by benchmark)."""
    values = {s.benchmark: s.value for s in scores if s.complete and s.value is not None}
    return check_values(values, references, tolerance)


def check_values(
    values: Mapping[str, float], references: Mapping[str, float], tolerance: float
) -> Gate:
    """The same for plain values: complete scores as fractions, by benchmark."""
    reasons = []
    if not references:
        reasons.append("not comparable: no reference scores are known for this base model")
    for name, reference in references.items():
        if name not in values:
            reasons.append(f"not comparable: {name} has no complete score for the base model")
        elif abs(100 * values[name] - reference) > tolerance:
            reasons.append(
                f"not comparable: {name} gives {100 * values[name]:.1f} for the base model where "
                f"{reference:.1f} ± {tolerance:.1f} is expected"
            )
    return Gate(not reasons, tuple(reasons))


def check_report(
    report: Mapping[str, Any],
    model: str,
    tool: bool,
    references: Mapping[str, float] | None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> Gate | None:
    """The base gate on a scores.json (`evaluation.Report.as_json`).

    Without `references` those of the paper are taken, where it reports this model untrained; None
    where it does not. A partial evaluation is never comparable.
    """
    if not references:
        references = PAPER_BASE.get((PurePath(model).name, tool))
    if references is None:
        return None
    complete = {n: s["value"] for n, s in report["benchmarks"].items() if s["complete"]}
    return check_values({} if report["partial"] else complete, references, tolerance)
