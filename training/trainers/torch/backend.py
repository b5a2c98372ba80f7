"""The embedded backend: PyTorch and transformers in this process, on one device."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from training.config import Model, Optimiser, Rollout
from training.disk import need_room
from training.models import load_tokenizer, save_model
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Trajectory
from training.rollout.transformers_engine import TransformersEngine
from training.sandbox.client import Sandbox
from training.stages.base import StageContext
from training.trainers.backends import Role
from training.trainers.common import step_size
from training.trainers.samples import Sample
from training.trainers.torch import setup
from training.trainers.torch.checkpoint import Checkpoints, bytes_of
from training.trainers.torch.update import PolicyUpdate


@asynccontextmanager
async def open_backend(ctx: StageContext) -> AsyncIterator["TorchBackend"]:
    """See `training.trainers.backends.Backend`."""
    setup.set_deterministic()
    async with setup.tool(ctx) as sandbox:
        yield TorchBackend(ctx, sandbox)


class TorchBackend:
    """See `training.trainers.backends.Backend`."""

    def __init__(self, ctx: StageContext, sandbox: Sandbox | None) -> None:
        self._ctx, self._sandbox = ctx, sandbox
        self._engines: list[TransformersEngine] = []

    async def policy(self, role: Role) -> "TorchPolicy":
        """See `training.trainers.backends.Backend.policy`."""
        ctx = self._ctx
        model, optimiser = ctx.section(Model), ctx.section(Optimiser)
        source = ctx.input(role)
        tokenizer = load_tokenizer(source / "model", remote_code=model.remote_code)
        rate, clip_low = step_size(ctx, role)
        update = PolicyUpdate(
            setup.trained_model(source, model),
            setup.frozen_model(ctx.input("base"), model),
            setup.update_settings(optimiser, model, learning_rate=rate, clip_low=clip_low),
        )
        sandbox = self._sandbox if role == "executor" else None
        engine, loop = setup.tool_loop(update.policy, tokenizer, ctx.section(Rollout), sandbox)
        self._engines.append(engine)
        return TorchPolicy(update, tokenizer, engine, loop, ctx.work / "checkpoints")

    async def frozen(self, artifact: Path) -> ToolLoop:
        """See `training.trainers.backends.Backend.frozen`."""
        model = self._ctx.section(Model)
        engine, loop = setup.tool_loop(
            setup.frozen_model(artifact, model),
            load_tokenizer(artifact / "model", remote_code=model.remote_code),
            self._ctx.section(Rollout),
            self._sandbox,
        )
        self._engines.append(engine)
        return loop

    async def metrics(self) -> dict[str, float]:
        """See `training.trainers.backends.Backend.metrics`."""
        totals = [engine.metrics() for engine in self._engines]
        seconds = max(sum(t["seconds"] for t in totals), 1e-9)
        tokens = sum(t["generated_tokens"] for t in totals)
        speed = {"engine_tokens_per_second": tokens / seconds}
        return speed | (self._sandbox.metrics() if self._sandbox else {})


class TorchPolicy:
    """See `training.trainers.backends.Policy`: a `PolicyUpdate`, and an engine that follows it."""

    def __init__(
        self,
        update: PolicyUpdate,
        tokenizer: PreTrainedTokenizerFast,
        engine: TransformersEngine,
        loop: ToolLoop,
        checkpoints: Path,
    ) -> None:
        self._update, self._tokenizer = update, tokenizer
        self._engine, self._loop = engine, loop
        self._checkpoints = Checkpoints(checkpoints)

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]:
        """See `training.trainers.backends.Sampler.rollout`."""
        return await self._loop.rollout(tasks, group_size, sampling, seeds)

    async def restore(self) -> int:
        """See `training.trainers.backends.Policy.restore`."""
        done = self._checkpoints.restore(self._update.policy, self._update.optimiser)
        self._engine.update(self._update.policy)
        return done

    async def step(self, groups: Sequence[Sequence[Sample]], seed: int) -> dict[str, float]:
        """See `training.trainers.backends.Policy.step`."""
        metrics = self._update.step(groups, seed)
        self._engine.update(self._update.policy)
        return metrics

    async def save(self, step: int) -> None:
        """See `training.trainers.backends.Policy.save`."""
        self._checkpoints.save(step, self._update.policy, self._update.optimiser)

    async def publish(self, folder: Path) -> None:
        """See `training.trainers.backends.Policy.publish`."""
        weights = bytes_of(self._update.policy.state_dict())
        need_room(folder.parent, weights, "the artifact with its weights")
        save_model(self._update.policy, self._tokenizer, folder)
