"""Which numbers go to MLflow. The rest stays in metrics.jsonl, which has them all.

A tracking page with many keys is slow and unreadable, so the lists are short on purpose: at most
56 in a child run (one outer iteration) and 20 in a parent run.
"""

from collections.abc import Mapping
from typing import Any

_UPDATE = (
    "loss",
    "policy_loss",
    "kl",
    "entropy",
    "grad_norm",
    "clip_low",
    "clip_high",
    "engine_gap",
    "seconds_update",
)

CHILD: dict[str, tuple[str, ...]] = {
    "base_model": ("loss",),
    "curriculum": (
        *_UPDATE,
        "format_valid_share",
        "distinct_task_share",
        "reward",
        "uncertainty",
        "tool_reward",
        "repetition",
        "reference_reward",
        "agreement",
        "unresolved_share",
        "positive_gap_share",
        "mean_tool_calls",
        "infra_dropped",
    ),
    "executor": (
        *_UPDATE,
        "included_share",
        "unresolved_share",
        "reference_unresolved_share",
        "v_adv",
        "agreement",
        "unanimous_share",
        "valid_answer_share",
        "mean_tool_calls",
        "top_answer_share",
        "same_majority_share",
        "structure_non_collinear_share",
        "infra_dropped",
        "seconds_sampling",
    ),
    "evaluation": (
        "greedy",
        "mean_at_8",
        "mean_at_32",
        "math_avg",
        "general_avg",
        "mean_tool_calls",
        "top_answer_share",
    ),
}
"""Keys by stage, named ``{stage}/{key}``; step = inner step, for evaluation the iteration."""

SECONDS = ("base_model", "curriculum", "anchor_cache", "executor", "evaluation")
"""Stages whose original seconds are logged, as ``{stage}/seconds``."""

PARENT = (
    "greedy",
    "mean_at_8",
    "v_adv",
    "positive_gap_share",
    "unresolved_share",
    "format_valid_share",
    "mean_tool_calls",
    "distinct_task_share",
    "top_answer_share",
    "in_grammar_share",
    "math_avg",
    "general_avg",
    "alarms",
    "seconds",
    "paid_seconds",
)
"""Headline numbers of an iteration, step = iteration; the same as in summary.json."""


def stage_values(stage: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed values of a stage under their MLflow names."""
    return {f"{stage}/{key}": values[key] for key in CHILD.get(stage, ()) if key in values}


def parent_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed values of a summary row; mean@k keeps its k in its name."""
    means = [key for key in row if key.startswith("mean_at_") and key not in PARENT]
    return {key: row[key] for key in (*PARENT, *means) if key in row}
