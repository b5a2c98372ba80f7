"""An evaluation from names to a report; the stage, the deployment and the command line share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.benchmarks.grading import Grader
from training.benchmarks.loading import Loaded, Missing, Sources, load
from training.benchmarks.metrics import Average, Score, average
from training.benchmarks.responses import Ledger
from training.benchmarks.runner import Generator, Job, plan_jobs, run, score_benchmarks


@dataclass(frozen=True)
class Report:
    """What an evaluation found.

    `missing` maps benchmarks that could not be loaded to the reason. `limit` and `shard` say
    which part of each benchmark was asked; a report of a part has no comparable averages.
    """

    scores: tuple[Score, ...]
    loaded: tuple[Loaded, ...]
    missing: Mapping[str, str]
    averages: tuple[Average, ...]
    limit: int | None
    shard: tuple[int, int]

    @property
    def partial(self) -> bool:
        """True when not all questions were asked."""
        return self.shard[1] > 1 or any(
            self.limit is not None and self.limit < len(b.questions) for b in self.loaded
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for a file; scores stay unrounded."""
        found = {b.entry.name: b for b in self.loaded}
        return {
            "partial": self.partial,
            "limit": self.limit,
            "shard": list(self.shard),
            "benchmarks": {
                s.benchmark: {
                    **{k: v for k, v in asdict(s).items() if k != "by_question"},
                    "complete": s.complete,
                    "source": found[s.benchmark].source,
                    "checksum": found[s.benchmark].checksum,
                    "notes": list(found[s.benchmark].notes),
                    "by_question": s.by_question,
                }
                for s in self.scores
            },
            "missing": dict(self.missing),
            "averages": {
                a.family: {
                    "value": None if a.value is None else float(a.value),
                    "complete": a.complete and not self.partial,
                    "missing": list(a.missing),
                }
                for a in self.averages
            },
        }


def load_all(names: Sequence[str], sources: Sources) -> tuple[list[Loaded], dict[str, str]]:
    """The benchmarks that can be loaded, and the reasons for those that cannot.

    Raises:
        ValueError: a name is no benchmark's.
    """
    found, missing = [], {}
    for name in dict.fromkeys(names):
        result = load(name, sources)
        if isinstance(result, Missing):
            missing[name] = result.reason
        else:
            found.append(result)
    return found, missing


async def evaluate(
    loaded: Sequence[Loaded],
    missing: Mapping[str, str],
    generator: Generator,
    grader: Grader,
    folder: Path,
    *,
    made_by: Mapping[str, Any],
    seed: int,
    concurrency: int,
    limit: int | None = None,
    shard: tuple[int, int] = (0, 1),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Report, list[Job], Ledger]:
    """Evaluate on `loaded` with responses and grades kept in `folder`.

    `made_by` describes the model and its decoding; a folder that was made by something else is
    refused with ValueError. Returns the report, the jobs in order, and the ledger, closed.
    """
    jobs = plan_jobs(loaded, seed, limit, shard)
    ledger = Ledger(folder, made_by)
    try:
        await run(jobs, generator, grader, ledger, concurrency, progress)
    finally:
        ledger.close()
    scores = tuple(score_benchmarks(loaded, jobs, ledger, seed))
    families = dict.fromkeys(b.entry.family for b in loaded)
    averages = tuple(average(family, scores) for family in families)
    return Report(scores, tuple(loaded), missing, averages, limit, shard), jobs, ledger
