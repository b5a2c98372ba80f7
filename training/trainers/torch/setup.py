"""The parts that both training stages put together from their configuration."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from training.config import Model, Optimiser, Prompts, Rollout
from training.errors import InfraError
from training.models import DTYPES, load_model
from training.prompts import PromptBook
from training.rollout.engine import Sampling
from training.rollout.tool_loop import ToolLoop
from training.rollout.trajectory import Status, Trajectory
from training.rollout.transformers_engine import TransformersEngine
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.settings import SandboxSettings
from training.stages.base import StageContext
from training.trainers.torch.update import UpdateSettings

Group = list[Trajectory]


def trained_model(folder: Path, model: Model) -> PreTrainedModel:
    """Weights to be trained: always float32, since small updates vanish in bfloat16."""
    return load_model(folder / "model", "float32", remote_code=model.remote_code)


def frozen_model(folder: Path, model: Model) -> PreTrainedModel:
    """Weights that only sample or serve as the KL's reference, in the configured type."""
    frozen = load_model(folder / "model", model.dtype, remote_code=model.remote_code)
    return frozen.requires_grad_(False)


def update_settings(
    optimiser: Optimiser, model: Model, *, learning_rate: float, clip_low: float
) -> UpdateSettings:
    """The settings of the policy update; learning rate and lower clip differ between agents."""
    return UpdateSettings(
        learning_rate=learning_rate,
        beta=optimiser.kl_coefficient,
        kl=optimiser.kl,
        mini_batches=optimiser.mini_batches,
        clip_low=clip_low,
        gradient_clip=optimiser.gradient_clip,
        micro_batch_rows=optimiser.micro_batch_rows,
        weight_decay=optimiser.weight_decay,
        betas=(optimiser.beta_1, optimiser.beta_2),
        dtype=DTYPES[model.dtype],
    )


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


@asynccontextmanager
async def tool(ctx: StageContext) -> AsyncIterator[Sandbox | None]:
    """The sandbox of the stage, or None where the Executor has no tool.

    Raises `InfraError` when no isolated sandbox can be had, or when it fails too often.
    """
    if not ctx.section(Rollout).tool:
        yield None
        return
    try:
        async with Sandbox(ctx.section(SandboxSettings)) as sandbox:
            yield sandbox
    except SandboxError as error:
        raise InfraError(str(error)) from error


def executor_sampling(rollout: Rollout) -> Sampling:
    """How the Executor samples while it is trained or judged."""
    return Sampling(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_turns=rollout.max_turns if rollout.tool else 1,
        max_turn_tokens=rollout.max_turn_tokens,
        max_context_tokens=rollout.max_context_tokens,
    )


def tool_loop(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    rollout: Rollout,
    sandbox: Sandbox | None,
) -> tuple[TransformersEngine, ToolLoop]:
    """An embedded engine on these weights and the loop that drives it."""
    engine = TransformersEngine(model, tokenizer, wave_rows=rollout.wave_rows)
    loop = ToolLoop(
        tokenizer,
        engine,
        sandbox,
        max_code_chars=rollout.max_code_chars,
        max_observation_tokens=rollout.max_observation_tokens,
    )
    return engine, loop


class InfraGuard:
    """Takes incomplete groups out, and stops the stage when there are too many of them."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.trajectories = 0
        self.failures = 0

    def complete(self, groups: Sequence[Group]) -> list[Group | None]:
        """The groups in order, None where a failure of our own machinery persisted.

        Raises `InfraError` when the share of failed trajectories of this attempt exceeds the
        limit.
        """
        failed = [sum(t.status is Status.INFRA for t in group) for group in groups]
        self.trajectories += sum(len(group) for group in groups)
        self.failures += sum(failed)
        if self.failures > self.max_share * self.trajectories:
            raise InfraError(
                f"{self.failures} of {self.trajectories} trajectories failed in the sandbox or the "
                f"engine, more than rollout.max_infra_share {self.max_share} allows; look at the "
                "stage's log and the sandbox self-test, then retry"
            )
        return [None if bad else group for bad, group in zip(failed, groups, strict=True)]


def set_deterministic() -> None:
    """Refuse kernels whose result depends on timing, so that equal inputs give equal bits."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
