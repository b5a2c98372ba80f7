"""Scores with everything a reader needs to judge them (docs/method.md section 7).

A score is the mean over questions of the mean over a question's responses: pass@1 with one greedy
response a question, mean@k with k sampled ones. All shares and scores are fractions in [0, 1].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from statistics import fmean, stdev

import numpy as np

from training.benchmarks.catalog import Family, members
from training.benchmarks.schema import GradeStatus
from training.seeds import derive_seed

INFRA_LIMIT = 0.02
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Outcome:
    """What the metrics need of one graded response."""

    question_id: str
    sample: int
    correct: bool | None
    status: GradeStatus
    truncated: bool = False
    tool_calls: int = 0
    undecided: bool = False
    subject: str | None = None


@dataclass(frozen=True)
class Score:
    """One benchmark's result.

    `value` is None where no score may be given, and `withheld` says why. `n` counts questions with
    at least one usable response; `missing` expected responses that never came; `infra` responses
    dropped because our machinery failed. `unparsed`, `truncated` and `undecided` (the symbolic
    judge hit its limit, counted as wrong) are shares of the usable responses. `interval` is the
    95 % percentile bootstrap interval over questions.
    """

    benchmark: str
    metric: str
    value: float | None
    withheld: str | None
    n: int
    expected: int
    missing: int
    infra: int
    unparsed: float
    truncated: float
    undecided: float
    tool_calls: float
    interval: tuple[float, float] | None
    by_question: dict[str, float]
    by_subject: dict[str, float]

    @property
    def complete(self) -> bool:
        """True when every expected question was scored."""
        return self.value is not None and self.n == self.expected and self.missing == 0


def score(
    benchmark: str,
    metric: str,
    outcomes: Iterable[Outcome],
    expected: int,
    samples: int = 1,
    seed: int = 0,
) -> Score:
    """The score of `expected` questions with `samples` responses each.

    Raises:
        ValueError: a response occurs twice, or there are more than expected.
    """
    rows = list(outcomes)
    if len({(r.question_id, r.sample) for r in rows}) < len(rows):
        raise ValueError(f"{benchmark}: a response was graded twice; scores need each once")
    planned = expected * samples
    if len(rows) > planned:
        raise ValueError(f"{benchmark}: {len(rows)} responses where {planned} are expected")
    usable = [r for r in rows if r.correct is not None]
    infra = len(rows) - len(usable)
    by_question: defaultdict[str, list[bool]] = defaultdict(list)
    subjects: dict[str, str] = {}
    for r in usable:
        by_question[r.question_id].append(bool(r.correct))
        if r.subject is not None:
            subjects[r.question_id] = r.subject
    means = {q: fmean(values) for q, values in by_question.items()}
    withheld = None
    if not means:
        withheld = "no usable response"
    elif infra > INFRA_LIMIT * len(rows):
        withheld = (
            f"{infra} of {len(rows)} responses failed in our machinery, above {INFRA_LIMIT:.0%}"
        )
    given = withheld is None
    return Score(
        benchmark=benchmark,
        metric=metric,
        value=fmean(means.values()) if given else None,
        withheld=withheld,
        n=len(means),
        expected=expected,
        missing=planned - len(rows),
        infra=infra,
        unparsed=_share(r.status is GradeStatus.UNPARSED for r in usable),
        truncated=_share(r.truncated for r in usable),
        undecided=_share(r.undecided for r in usable),
        tool_calls=fmean(r.tool_calls for r in usable) if usable else 0.0,
        interval=bootstrap(list(means.values()), derive_seed(seed, benchmark)) if given else None,
        by_question=means,
        by_subject=_by_subject(means, subjects),
    )


def bootstrap(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`, at least one of them."""
    data = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        means[i] = data[generator.integers(0, len(data), len(data))].mean()
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True)
class Average:
    """Math AVG or General AVG, in percent, rounded last to one decimal.

    `missing` names the members without a complete score; the average is then over the others and
    not comparable. `value` is None when no member has a score.
    """

    family: Family
    value: Decimal | None
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True when every member has a complete score."""
        return not self.missing


def average(family: Family, scores: Iterable[Score]) -> Average:
    """Unweighted mean over a family's benchmarks of their unrounded scores."""
    by_name = {s.benchmark: s for s in scores}
    present = [s for name in members(family) if (s := by_name.get(name)) and s.value is not None]
    missing = tuple(n for n in members(family) if n not in by_name or not by_name[n].complete)
    if not present:
        return Average(family, None, missing)
    return Average(family, percent(fmean(s.value for s in present if s.value is not None)), missing)


def percent(fraction: float) -> Decimal:
    """A share as per cent with one decimal, halves up."""
    return (Decimal(repr(fraction)) * 100).quantize(Decimal("0.1"), ROUND_HALF_UP)


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation over runs; the deviation needs two.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a mean over seeds needs at least one run")
    return fmean(values), stdev(values) if len(values) > 1 else None


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0


def _by_subject(means: dict[str, float], subjects: dict[str, str]) -> dict[str, float]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for question, subject in subjects.items():
        groups[subject].append(means[question])
    return {subject: fmean(values) for subject, values in sorted(groups.items())}
