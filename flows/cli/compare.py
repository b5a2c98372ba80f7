"""`anchorloop compare`: paired tests between evaluations of two models on the same questions."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.errors import UserError


def compare(
    first: Annotated[
        str, typer.Argument(help="scores.json, or several of other seeds, with commas between.")
    ],
    second: Annotated[str, typer.Argument(help="The same for the model compared with it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
) -> None:
    """Compare SECOND with FIRST: difference, 95 % interval and p-value a benchmark."""
    from training.benchmarks.comparison import compare_reports, seeds_table

    one, other = ([_report(Path(path)) for path in side.split(",")] for side in (first, second))
    try:
        found = compare_reports(one, other)
    except ValueError as error:
        raise UserError(str(error)) from None
    seeds = [seeds_table(one), seeds_table(other)]
    if as_json:
        tests = {name: asdict(test) for name, test in found.items()}
        print(json.dumps({"paired": tests, "first": seeds[0], "second": seeds[1]}, indent=1))
        return
    for name, test in found.items():
        low, high = test.interval
        print(
            f"{name}: {_shown(seeds[0].get(name))} → {_shown(seeds[1].get(name))}, difference "
            f"{100 * test.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}), "
            f"p = {test.p_value:.3g} ({test.test}, n = {test.n}, {test.wins} won, "
            f"{test.losses} lost, {test.unmatched} unmatched)"
        )


def _report(path: Path) -> dict[str, Any]:
    file = path / "scores.json" if path.is_dir() else path
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        benchmarks = dict(report["benchmarks"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise UserError(
            f"{file} is no evaluation report; name a scores.json of `anchorloop evaluate`"
        ) from None
    for name, entry in benchmarks.items():
        if not _is_score(entry):
            raise UserError(
                f"{file}: its entry {name!r} is no score of `anchorloop evaluate`, which has "
                "value, checksum and by_question"
            )
    return dict(report)


def _is_score(entry: object) -> bool:
    """Whether a report's entry has what a comparison reads: numbers and the texts' checksum."""
    if not isinstance(entry, dict) or not isinstance(entry.get("by_question"), dict):
        return False
    numbers = [*entry["by_question"].values(), entry.get("value") or 0.0]
    return isinstance(entry.get("checksum"), str) and all(
        isinstance(number, (int, float)) for number in numbers
    )


def _shown(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return "–"
    mean, deviation = value
    return f"{100 * mean:.1f}" + (f" ± {100 * deviation:.1f}" if deviation is not None else "")
