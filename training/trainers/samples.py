"""What an update learns from: trajectories with their advantages, dealt to optimiser steps."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.errors import NumericError
from training.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Sample:
    """One trajectory with what the loss needs to know about it.

    `advantage` is the effective one (weighted for ADPO, plain for GRPO), `clip_high` the width of
    the upper clip.
    """

    trajectory: Trajectory
    advantage: float
    clip_high: float

    @property
    def length(self) -> int:
        """Tokens of prompt and output together."""
        return len(self.trajectory.prompt_ids) + len(self.trajectory.output_ids)


def require_finite(groups: Sequence[Sequence[Sample]]) -> None:
    """Raise `NumericError`, naming the task, for an advantage or a sampled log-probability that is
    not finite."""
    for sample in (sample for group in groups for sample in group):
        t = sample.trajectory
        if not math.isfinite(sample.advantage):
            raise NumericError(f"the advantage of task {t.task} is {sample.advantage}")
        bad = [logp for logp in t.logprobs if not math.isfinite(logp)]
        if bad:
            raise NumericError(
                f"a token of task {t.task} was sampled with log-probability {bad[0]}"
            )


def deal(groups: Sequence[Sequence[Sample]], steps: int, seed: int) -> list[list[Sample]]:
    """Samples of each optimiser step: whole groups, dealt by a seeded shuffle.

    There are `steps` of them, fewer where there are fewer groups, so that none is empty.
    """
    order = list(range(len(groups)))
    random.Random(seed).shuffle(order)
    count = min(steps, len(groups))
    return [[s for i in sorted(order[k::count]) for s in groups[i]] for k in range(count)]
