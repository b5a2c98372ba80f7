"""The parts that both training stages put together from their configuration."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from training.config import Model, Optimiser, Rollout
from training.errors import InfraError
from training.models import DTYPES, load_model
from training.rollout.tool_loop import ToolLoop
from training.rollout.transformers_engine import TransformersEngine
from training.sandbox.client import Sandbox, SandboxError
from training.sandbox.settings import SandboxSettings
from training.stages.base import StageContext
from training.trainers.torch.update import UpdateSettings


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


def set_deterministic() -> None:
    """Refuse kernels whose result depends on timing, so that equal inputs give equal bits."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
