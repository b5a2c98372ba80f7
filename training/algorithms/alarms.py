"""Signs that training collapses, read from the metrics of the steps so far.

Every rule looks at one metric. Once it has been bad for `patience` steps in a row it is a soft
alarm, a warning; some rules are hard alarms after `stop_after` such steps, which end the stage. A
metric that a step does not have is not bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Metrics = Mapping[str, float | int | None]

LEAST_TOOL_CALLS = 0.02
"""Executed calls a trajectory below which the tool counts as given up."""


@dataclass(frozen=True)
class Limits:
    """When a metric is bad, and for how long; the configuration's section `alarms` says more.

    `stop_after` 0 means never.
    `terms` are the reward terms that must vary, as metric names; `tool` tells whether there is a
    tool to be used.
    """

    patience: int
    stop_after: int
    min_entropy: float
    max_share: float
    terms: tuple[str, ...] = ()
    tool: bool = True


@dataclass(frozen=True)
class Alarm:
    """One alarm, raised by the metrics of `step`; `sentence` says what was seen."""

    step: int
    name: str
    level: Literal["soft", "hard"]
    sentence: str


def alarms(history: Sequence[Metrics], limits: Limits) -> list[Alarm]:
    """Return what the newest step raises: each soft alarm once a streak, hard ones every step.

    `history` has one entry a step, the newest last, each with its `step`.
    """
    if not history:
        return []
    step = int(history[-1]["step"] or 0)
    found = []
    for rule in _rules(limits):
        bad = _streak(history, rule.bad)
        if limits.stop_after and rule.worst is not None:
            worst = _streak(history, rule.worst)
            if worst >= limits.stop_after:
                found.append(Alarm(step, rule.name, "hard", rule.sentence(history[-1], worst)))
                continue
        if bad == limits.patience:
            found.append(Alarm(step, rule.name, "soft", rule.sentence(history[-1], bad)))
    return found


Bad = Callable[[Metrics, Metrics | None], bool]
"""Whether a step is bad, given the step before it."""


@dataclass(frozen=True)
class _Rule:
    name: str
    metric: str
    meaning: str
    bad: Bad
    worst: Bad | None = None

    def sentence(self, last: Metrics, steps: int) -> str:
        value = last[self.metric]
        shown = f"{value:.4g}" if value is not None else "absent"
        span = "at this step" if steps == 1 else f"for {steps} steps in a row"
        return f"{self.meaning} {span} ({self.metric} is {shown})"


def _rules(limits: Limits) -> list[_Rule]:
    no_entropy = _below("entropy", limits.min_entropy)
    repeated = _below("distinct_task_share", 1.0 - limits.max_share)
    rules = [
        _Rule("entropy_collapse", "entropy", "the policy hardly varies", no_entropy, no_entropy),
        _Rule(
            "zero_variance",
            "zero_variance_share",
            "hardly any group tells the policy what to prefer",
            _above("zero_variance_share", limits.max_share),
            _above("zero_variance_share", 1.0),
        ),
        _Rule(
            "duplicate_tasks",
            "distinct_task_share",
            "the Curriculum writes the same tasks again and again",
            repeated,
            repeated,
        ),
        _Rule(
            "unresolved",
            "unresolved_share",
            "most groups have no majority answer",
            _above("unresolved_share", limits.max_share),
        ),
        _Rule(
            "truncated",
            "truncated_share",
            "most trajectories run out of tokens",
            _above("truncated_share", limits.max_share),
        ),
    ]
    rules += [
        _Rule(f"constant_{term}", term, f"the reward term '{term}' does not change", _same(term))
        for term in limits.terms
    ]
    if limits.tool:
        unused = _below("mean_tool_calls", LEAST_TOOL_CALLS)
        rules.append(_Rule("tool_unused", "mean_tool_calls", "the tool is not used", unused))
    return rules


def _streak(history: Sequence[Metrics], bad: Bad) -> int:
    count = 0
    for place in range(len(history) - 1, -1, -1):
        if not bad(history[place], history[place - 1] if place else None):
            break
        count += 1
    return count


def _below(metric: str, limit: float) -> Bad:
    return lambda now, _: (value := now.get(metric)) is not None and value < limit


def _above(metric: str, limit: float) -> Bad:
    return lambda now, _: (value := now.get(metric)) is not None and value >= limit


def _same(metric: str) -> Bad:
    return lambda now, before: (
        before is not None and now.get(metric) is not None and now[metric] == before.get(metric)
    )
