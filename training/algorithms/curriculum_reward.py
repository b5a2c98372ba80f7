"""The Curriculum's reward for a batch of candidates (paper eqs. 7-11; method section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.algorithms.candidate import Candidate
from training.algorithms.group_stats import EPSILON, Deviation, normalise
from training.algorithms.repetition import REPETITION_DISTANCE, components
from training.algorithms.voting import Vote
from training.errors import NumericError

W_UNC = 1.0
W_TOOL = 0.25
W_REP = 0.20
LAMBDA_REF = 0.4
TOOL_CAP = 4


@dataclass(frozen=True)
class Rollouts:
    """What the Executor did with one candidate: G current and G anchor trajectories.

    ``tool_calls`` holds the executed calls of each current trajectory. ``anchor`` is None where
    the method has no reference term.
    """

    current: Vote
    anchor: Vote | None
    tool_calls: Sequence[int]


@dataclass(frozen=True)
class CandidateScore:
    """All terms of eq. 11 for one candidate, and its GRPO advantage over the batch."""

    r_fmt: int
    r_unc: float
    r_tool: float
    r_rep: float
    r_ref: float
    r_c: float
    advantage: float


def r_unc(current: Vote) -> float:
    """Return 1 - 2 |p_max - 1/2| (eq. 7), defined for unresolved groups too."""
    return (current.size - abs(2 * current.top - current.size)) / current.size


def r_tool(tool_calls: Sequence[int], tool_cap: int = TOOL_CAP) -> float:
    """Return the mean over trajectories of min(executed calls, tool_cap) (eq. 8).

    Raises ValueError for no trajectories or a negative number of calls.
    """
    if not tool_calls or min(tool_calls) < 0:
        raise ValueError(f"tool calls must be counts, one a trajectory, got {list(tool_calls)}")
    return sum(min(calls, tool_cap) for calls in tool_calls) / len(tool_calls)


def r_ref(current: Vote, anchor: Vote | None) -> float:
    """Return max(0, mu_cur - mu_anc) (eq. 10); 0 if a group is unresolved or there is no anchor.

    Raises ValueError for groups of different size.
    """
    if anchor is None:
        return 0.0
    if current.size != anchor.size:
        raise ValueError(f"groups of {current.size} and {anchor.size} trajectories do not compare")
    if not (current.resolved and anchor.resolved):
        return 0.0
    return max(0, current.top - anchor.top) / current.size


def compose(
    r_fmt: int,
    r_unc: float,
    r_tool: float,
    r_rep: float,
    r_ref: float,
    *,
    w_unc: float = W_UNC,
    w_tool: float = W_TOOL,
    w_rep: float = W_REP,
    lambda_ref: float = LAMBDA_REF,
) -> float:
    """Return the complete reward R_C (eq. 11)."""
    return r_fmt * max(0.0, w_unc * r_unc + w_tool * r_tool - w_rep * r_rep + lambda_ref * r_ref)


def score_batch(
    candidates: Sequence[Candidate],
    rollouts: Sequence[Rollouts | None],
    *,
    w_unc: float = W_UNC,
    w_tool: float = W_TOOL,
    w_rep: float = W_REP,
    lambda_ref: float = LAMBDA_REF,
    tool_cap: int = TOOL_CAP,
    repetition_distance: float = REPETITION_DISTANCE,
    std: Deviation = "sample",
    eps: float = EPSILON,
) -> list[CandidateScore]:
    """Score the B candidates of one Curriculum batch and normalise R_C over all of them.

    A format-invalid candidate has no rollouts (None): its rollout terms and R_C are 0, but it
    counts in B, in the repetition graph if it has a problem text, and in the GRPO statistics.
    Raises ValueError for lists of different length, a format-valid candidate without rollouts and
    tool calls that don't match their group, and NumericError for a term that is not finite.
    """
    if len(candidates) != len(rollouts):
        raise ValueError(f"{len(candidates)} candidates but {len(rollouts)} rollout entries")
    sizes = components([candidate.problem for candidate in candidates], repetition_distance)
    terms: list[tuple[int, float, float, float, float]] = []
    for index, (candidate, group, size) in enumerate(zip(candidates, rollouts, sizes, strict=True)):
        rep = size / len(candidates)
        if group is None:
            if candidate.r_fmt:
                raise ValueError(f"candidate {index} is format-valid but has no rollouts")
            terms.append((candidate.r_fmt, 0.0, 0.0, rep, 0.0))
            continue
        if len(group.tool_calls) != group.current.size:
            raise ValueError(
                f"candidate {index} has {len(group.tool_calls)} tool-call counts for a group "
                f"of {group.current.size}"
            )
        tool = r_tool(group.tool_calls, tool_cap)
        ref = r_ref(group.current, group.anchor)
        terms.append((candidate.r_fmt, r_unc(group.current), tool, rep, ref))
    for index, term in enumerate(terms):
        if not all(map(math.isfinite, term)):  # max(0, NaN) would make it a reward of 0
            named = dict(zip(("r_fmt", "r_unc", "r_tool", "r_rep", "r_ref"), term, strict=True))
            raise NumericError(f"the reward of candidate {index} is not finite: {named}")
    rewards = [
        compose(*t, w_unc=w_unc, w_tool=w_tool, w_rep=w_rep, lambda_ref=lambda_ref) for t in terms
    ]
    advantages = normalise(rewards, std, eps)
    return [
        CandidateScore(*t, r_c=reward, advantage=advantage)
        for t, reward, advantage in zip(terms, rewards, advantages, strict=True)
    ]
