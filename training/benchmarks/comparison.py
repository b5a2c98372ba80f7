"""Two evaluation reports side by side: paired tests a benchmark, and several seeds a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from training.benchmarks.metrics import over_seeds
from training.benchmarks.paired import Paired, compare

Report = Mapping[str, Any]
"""What `Report.as_json` writes into scores.json."""


def compare_reports(
    first: Sequence[Report], second: Sequence[Report], seed: int = 0
) -> dict[str, Paired]:
    """Paired tests of `second` against `first` on every benchmark both have.

    With several reports a side, runs of other seeds, a question's score is its mean over them.

    Raises:
        ValueError: a benchmark's texts differ between reports, or they share no benchmark.
    """
    names = [
        n for n in first[0]["benchmarks"] if all(n in r["benchmarks"] for r in (*first, *second))
    ]
    if not names:
        raise ValueError("the reports share no benchmark, so there is nothing to compare")
    for name in names:
        sums = {r["benchmarks"][name]["checksum"] for r in (*first, *second)}
        if len(sums) > 1:
            raise ValueError(f"the reports used different copies of {name}; evaluate on one file")
    return {name: compare(_means(first, name), _means(second, name), seed) for name in names}


def seeds_table(reports: Sequence[Report]) -> dict[str, tuple[float, float | None]]:
    """Mean and sample deviation over seeds of every benchmark all reports have a score for."""
    names = [
        n
        for n in reports[0]["benchmarks"]
        if all(r["benchmarks"].get(n, {}).get("value") is not None for r in reports)
    ]
    return {n: over_seeds([r["benchmarks"][n]["value"] for r in reports]) for n in names}


def _means(reports: Sequence[Report], name: str) -> dict[str, float]:
    tables = [r["benchmarks"][name]["by_question"] for r in reports]
    shared = set.intersection(*(set(table) for table in tables))
    return {q: fmean(table[q] for table in tables) for q in sorted(shared)}
