"""What the stages read from their configuration, whatever the backend."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

from training.config import Adpo, Curriculum, Optimiser, Prompts, Rollout
from training.errors import InfraError
from training.prompts import PromptBook
from training.rollout.engine import Sampling
from training.rollout.trajectory import Status, Trajectory
from training.stages.base import StageContext
from training.trainers.backends import Role

Group = list[Trajectory]


def prompt_book(ctx: StageContext, tokenizer: PreTrainedTokenizerFast) -> PromptBook:
    """Prompts of both agents from the template files of the stage's spec."""
    executor = ctx.file("template.executor")
    curriculum = "template.curriculum"
    return PromptBook(
        tokenizer,
        ctx.file(curriculum) if curriculum in ctx.spec.paths else executor,
        executor,
        ctx.section(Prompts).style,
        ctx.section(Rollout).max_code_chars,
    )


def executor_sampling(rollout: Rollout) -> Sampling:
    """How the Executor samples while it is trained or judged."""
    return Sampling(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_turns=rollout.max_turns if rollout.tool else 1,
        max_turn_tokens=rollout.max_turn_tokens,
        max_context_tokens=rollout.max_context_tokens,
    )


def step_size(ctx: StageContext, role: Role) -> tuple[float, float]:
    """Learning rate and width of the lower clip of an agent (docs/method.md sections 3 and 5)."""
    optimiser = ctx.section(Optimiser)
    if role == "executor":
        return optimiser.learning_rate, ctx.section(Adpo).clip_low
    rate = optimiser.curriculum_learning_rate or optimiser.learning_rate
    return rate, ctx.section(Curriculum).clip


_SMALL_SAMPLE = 100
"""Fewer trajectories than this are judged as if they were this many."""


class InfraGuard:
    """Takes incomplete groups out, and stops the stage when there are too many of them."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.trajectories = 0
        self.failures = 0

    def complete(self, groups: Sequence[Group]) -> list[Group | None]:
        """The groups in order, None where a failure of our own machinery persisted.

        Raises `InfraError` when the share of failed trajectories of this attempt exceeds the
        limit; a single failure in a small first batch does not.
        """
        failed = [sum(t.status is Status.INFRA for t in group) for group in groups]
        self.trajectories += sum(len(group) for group in groups)
        self.failures += sum(failed)
        if self.failures > self.max_share * max(self.trajectories, _SMALL_SAMPLE):
            raise InfraError(
                f"{self.failures} of {self.trajectories} trajectories failed in the sandbox or the "
                f"engine, more than rollout.max_infra_share {self.max_share} allows; look at the "
                "stage's log and the sandbox self-test, then retry"
            )
        return [None if bad else group for bad, group in zip(failed, groups, strict=True)]
