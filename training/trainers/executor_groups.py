"""One Executor group: votes, whether it enters the update, and with which advantages.

docs/method.md sections 4 and 5; pure, no tensors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from training.algorithms.adpo import clip_bounds, weight
from training.algorithms.cross_reference import (
    CrossReference,
    cross_reference_advantage,
    structure,
)
from training.algorithms.diagnostics import top_answer_share, v_adv
from training.algorithms.voting import Vote, vote
from training.config import Adpo, Advantage, Executor

Labels = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """What the update does with one group.

    `outcome` is `included`, or why the group is left out: `unresolved`, or `reference_unresolved`
    where only the reference group has no majority. `advantages` are the effective ones, weighted
    by the agreement; they are empty where the group is left out.
    """

    outcome: str
    current: Vote
    reference: Vote | None
    parts: CrossReference | None
    weight: float
    clip_high: float
    advantages: list[float]

    def record(self, labels: Labels, reference_labels: Labels | None) -> dict[str, Any]:
        """The line of the ledger that lets a person recompute the group by hand."""
        line: dict[str, Any] = {
            "outcome": self.outcome,
            "labels": list(labels),
            "majority": self.current.label,
            "agreement": self.current.agreement,
        }
        if self.reference is not None and reference_labels is not None:
            line["reference_labels"] = list(reference_labels)
            line["reference_majority"] = self.reference.label
        if self.parts is not None:
            line["a_cur"] = self.parts.a_cur
            line["a_hist"] = self.parts.a_hist
            line["weight"] = self.weight
            line["clip_high"] = self.clip_high
            line["advantages"] = self.advantages
            if self.reference is not None and self.reference.label and self.current.label:
                line["structure"] = structure(labels, self.current.label, self.reference.label)
        return line


def assess(
    labels: Labels,
    reference_labels: Labels | None,
    executor: Executor,
    adpo: Adpo,
    advantage: Advantage,
) -> GroupUpdate:
    """Vote, and compute the weighted advantages of a group that enters the update.

    `reference_labels` is None where the method has no historical term.
    """
    current = vote(labels)
    reference = None if reference_labels is None else vote(reference_labels)
    if not current.resolved or (reference is not None and not reference.resolved):
        outcome = "reference_unresolved" if current.resolved else "unresolved"
        return GroupUpdate(outcome, current, reference, None, 0.0, 0.0, [])
    scaled_down = reference is None and executor.scale_without_reference
    parts = cross_reference_advantage(
        labels,
        current,
        reference,
        alpha=executor.alpha,
        std=advantage.std,
        eps=advantage.epsilon,
        scale=1.0 - executor.alpha if scaled_down else 1.0,
    )
    p = current.agreement
    strength = weight(p, weight_min=adpo.weight_min, p_low=adpo.p_low, p_high=adpo.p_high)
    _, high = clip_bounds(
        p,
        clip_low=adpo.clip_low,
        clip_high=adpo.clip_high,
        clip_high_extra=adpo.clip_high_extra,
        p_low=adpo.p_low,
        p_high=adpo.p_high,
    )
    return GroupUpdate(
        "included",
        current,
        reference,
        parts,
        strength,
        high,
        [strength * a for a in parts.advantage],
    )


def summarise(lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The stage's numbers over ledger lines, shares as fractions, None where undefined.

    Groups that our own machinery could not complete (`infra`) were not sampled and count nowhere
    but in `infra_dropped`.
    """
    groups = [line for line in lines if line["outcome"] != "infra"]
    included = [line for line in groups if line["outcome"] == "included"]
    labels = [label for line in groups for label in line["labels"]]
    paired = [line for line in included if "reference_majority" in line]
    return {
        "groups": float(len(groups)),
        "included_share": _share(groups, "outcome", "included"),
        "unresolved_share": _share(groups, "outcome", "unresolved"),
        "reference_unresolved_share": _share(groups, "outcome", "reference_unresolved"),
        "v_adv": v_adv([line.get("advantages") for line in groups]),
        "agreement": _mean([line["agreement"] for line in groups]),
        "unanimous_share": _mean([line["agreement"] == 1 for line in groups]),
        "zero_variance_share": _mean([not any(line.get("advantages", [])) for line in groups]),
        "valid_answer_share": _mean([label is not None for label in labels]),
        "mean_tool_calls": _mean([calls for line in groups for calls in line["tool_calls"]]),
        "truncated_share": _mean([cut for line in groups for cut in line["truncated"]]),
        "top_answer_share": top_answer_share([line["majority"] for line in groups]),
        "same_majority_share": _mean(
            [line["majority"] == line["reference_majority"] for line in paired]
        ),
        "structure_zero_share": _share(paired, "structure", "zero"),
        "structure_collinear_share": _share(paired, "structure", "collinear"),
        "structure_non_collinear_share": _share(paired, "structure", "non_collinear"),
        "infra_dropped": float(len(lines) - len(groups)),
    }


def _share(lines: Sequence[Mapping[str, Any]], key: str, value: str) -> float | None:
    return _mean([line[key] == value for line in lines])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
