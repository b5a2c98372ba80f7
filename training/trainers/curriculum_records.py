"""What the Curriculum stage writes down about its candidates, and the numbers that follow.

All summaries are computed from the written lines, so a resumed stage reports what an unbroken one
would have reported.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from training.algorithms.candidate import Candidate
from training.algorithms.curriculum_reward import CandidateScore, Rollouts
from training.algorithms.diagnostics import distinct_share, positive_gap_share, unresolved_share
from training.algorithms.voting import vote
from training.rollout.trajectory import Trajectory
from training.trainers.judges import Judgement

Line = dict[str, Any]

INFRA = "the sandbox or the engine failed again and again on it or its group"


def group_line(group: Sequence[Trajectory]) -> Line:
    """Labels (null: no vote) and executed tool calls of one group, in the order of its members."""
    return {"labels": [t.label for t in group], "tool_calls": [t.n_tool for t in group]}


def candidate_line(
    index: int,
    written: Trajectory,
    candidate: Candidate,
    score: CandidateScore | None,
    judgement: Judgement | None,
) -> Line:
    """One candidate: its text, every term of its reward, and the groups it was judged by.

    A candidate that our own machinery could not complete, or its group, has left the batch: its
    `score` is None and `r_fmt` is null, so that nobody takes it for a task.
    """
    line: Line = {
        "index": index,
        "text": written.text,
        "truncated": written.truncated,
        "problem": candidate.problem,
        "answer": candidate.answer,
        "r_fmt": None if score is None else score.r_fmt,
        "reason": INFRA if score is None else candidate.reason,
    }
    if score is not None:
        line |= {
            "r_unc": score.r_unc,
            "r_tool": score.r_tool,
            "r_rep": score.r_rep,
            "r_ref": score.r_ref,
            "r_c": score.r_c,
            "advantage": score.advantage,
        }
    if judgement is not None:
        line["current"] = group_line(judgement.current)
        if judgement.reference is not None:
            line["reference"] = group_line(judgement.reference)
    return line


def rollouts(judgement: Judgement | None, with_reference: bool) -> Rollouts | None:
    """The votes that the reward reads; a reference for the statistics alone stays outside."""
    if judgement is None:
        return None
    anchor = judgement.reference if with_reference else None
    return Rollouts(
        current=vote([t.label for t in judgement.current]),
        anchor=vote([t.label for t in anchor]) if anchor else None,
        tool_calls=[t.n_tool for t in judgement.current],
    )


def summarise(lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The stage's numbers over candidate lines, shares as fractions, None where undefined.

    Reward terms that need a group, and everything about answers, are means over the format-valid
    candidates; `reward` and `repetition` are means over all that stayed in their batch, each of
    which is a group of its own in `zero_variance_share`.
    """
    kept = [line for line in lines if line["r_fmt"] is not None]
    valid = [line for line in kept if line["r_fmt"] == 1]
    votes = [vote(line["current"]["labels"]) for line in valid]
    labels = [label for line in valid for label in line["current"]["labels"]]
    calls = [n for line in valid for n in line["current"]["tool_calls"]]
    batches: dict[int, list[float]] = {}
    for line in kept:
        batches.setdefault(line.get("step", 0), []).append(line["advantage"])
    gap = None
    if any("reference" in line for line in valid):
        gap = positive_gap_share(
            [
                (vote(line["current"]["labels"]), vote(line["reference"]["labels"]))
                if "reference" in line
                else None
                for line in kept
            ]
        )
    return {
        "format_valid_share": _mean([line["r_fmt"] for line in kept]),
        "distinct_task_share": distinct_share([line["problem"] for line in valid]),
        "reward": _mean([line["r_c"] for line in kept]),
        "uncertainty": _mean([line["r_unc"] for line in valid]),
        "tool_reward": _mean([line["r_tool"] for line in valid]),
        "repetition": _mean([line["r_rep"] for line in kept]),
        "reference_reward": _mean([line["r_ref"] for line in valid]),
        "agreement": _mean([v.agreement for v in votes]),
        "unresolved_share": unresolved_share(votes),
        "positive_gap_share": gap,
        "valid_answer_share": _mean([label is not None for label in labels]),
        "mean_tool_calls": _mean(calls),
        "truncated_share": _mean([line["truncated"] for line in lines]),
        "zero_variance_share": _mean([not any(batch) for batch in batches.values()]),
        "infra_dropped": float(len(lines) - len(kept)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
