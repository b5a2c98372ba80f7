"""The GPU backend: verl trains (FSDP2), vLLM samples, Ray places both.

The stage's process is the driver. It starts Ray on this machine, or joins the cluster that
RAY_ADDRESS names.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import transfer_queue as tq
from omegaconf import DictConfig
from verl.plugin.platform import get_platform
from verl.utils.device import get_device_name

from training.config import Curriculum, Executor, Model, Optimiser, Rollout, Trainer
from training.errors import ConfigError
from training.rollout.vllm_engine import VllmSettings
from training.sandbox.settings import SandboxSettings
from training.stages.base import StageContext
from training.trainers.backends import Role
from training.trainers.common import step_size
from training.trainers.verl.cluster import join_ray, leave_ray
from training.trainers.verl.configure import Agent, compose_config
from training.trainers.verl.layout import split_gpus
from training.trainers.verl.loss import PolicyLoss
from training.trainers.verl.places import own_gpus, shared_gpus
from training.trainers.verl.policy import VerlPolicy
from training.trainers.verl.scoring import ScoringServers
from training.trainers.verl.thread import VerlThread
from training.trainers.verl.trainer import StageTrainer
from training.trainers.verl.turns import Turns

SHARED_MEMORY = 0.5
"""Share of a GPU's memory for a frozen model on a GPU that also trains: what training keeps there
while it rests must fit beside it."""


@asynccontextmanager
async def open_backend(ctx: StageContext) -> AsyncIterator["VerlBackend"]:
    """See `training.trainers.backends.Backend`.

    Raises `ConfigError` where there is no device that verl can train on.
    """
    if not get_platform().is_available():
        raise ConfigError(
            "trainer.backend 'verl' needs a GPU and there is none here; use 'torch', or run the "
            "stage on a machine with one"
        )
    backend = VerlBackend(ctx)
    try:
        yield backend
    finally:
        await backend.close()


class VerlBackend:
    """See `training.trainers.backends.Backend`.

    Frozen models play on GPUs of their own, or in turns with the agent on those that train.
    """

    def __init__(self, ctx: StageContext) -> None:
        self._ctx = ctx
        self._settings = ctx.section(Trainer)
        stage = ctx.spec.stage
        self._trains = stage in ("curriculum", "executor")
        self._split = split_gpus(self._settings, trains=self._trains, frozen=_frozen_models(ctx))
        self._thread = VerlThread(self._settings.deadline_seconds)
        self._turns = Turns()
        self._trainer: StageTrainer | None = None
        self._scoring: list[ScoringServers] = []
        self._config = self._compose() if self._trains else None
        join_ray(self._settings, self._config)

    async def policy(self, role: Role) -> VerlPolicy:
        """See `training.trainers.backends.Backend.policy`."""
        assert self._config is not None, f"{self._ctx.spec.stage} trains nobody"
        optimiser = self._ctx.section(Optimiser)
        loss = PolicyLoss(step_size(self._ctx, role)[1], optimiser.kl_coefficient)
        self._trainer = await self._thread.call(_start, self._config, loss)
        return VerlPolicy(self._ctx, role, self._trainer, self._thread, self._turns)

    async def frozen(self, artifact: Path) -> ScoringServers:
        """See `training.trainers.backends.Backend.frozen`.

        Where GPUs are shared, the agent that trains on them comes first.
        """
        rollout, model = self._ctx.section(Rollout), self._ctx.section(Model)
        split, copy = self._split, self._settings.gpus_per_copy
        settings = VllmSettings(
            dtype=model.dtype,
            max_context_tokens=rollout.max_context_tokens,
            tensor_parallel=copy,
            plain=get_device_name() == "cpu",
            deadline_seconds=self._settings.deadline_seconds,
            remote_code=model.remote_code,
        )
        if split.shared:
            assert self._trainer is not None, "nobody trains on the GPUs that are to be shared"
            ranks = await self._thread.call(self._trainer.gpus)
            places, turns = shared_gpus(ranks, copy), self._turns
            settings = replace(settings, memory_share=SHARED_MEMORY, sleeps=True)
        else:
            places, turns = own_gpus(split.copies, copy), Turns()
        servers = ScoringServers.place(
            places,
            turns,
            self._settings.deadline_seconds,
            folder=str(artifact / "model"),
            settings=settings,
            sandbox=self._ctx.section(SandboxSettings) if rollout.tool else None,
            max_code_chars=rollout.max_code_chars,
            max_observation_tokens=rollout.max_observation_tokens,
        )
        self._scoring.append(servers)
        await servers.ready()
        return servers

    async def metrics(self) -> dict[str, float]:
        """See `training.trainers.backends.Backend.metrics`; copies sample at the same time."""
        totals = [t for servers in self._scoring for t in await servers.metrics() if t]
        if not totals:
            return {}
        return {"engine_tokens_per_second": sum(t["tokens_per_second"] for t in totals)}

    async def close(self) -> None:
        """End everything that was started; what verl's thread waits for ends with Ray."""
        try:
            await asyncio.gather(*(servers.close() for servers in self._scoring))
        finally:
            leave_ray()
            self._thread.close()

    def _compose(self) -> DictConfig:
        ctx = self._ctx
        role: Role = "curriculum" if ctx.spec.stage == "curriculum" else "executor"
        rollout = ctx.section(Rollout)
        longest, steps = rollout.max_context_tokens, 0
        if role == "curriculum":
            longest -= ctx.section(Curriculum).max_new_tokens
            steps = ctx.section(Curriculum).steps
        else:
            steps = ctx.section(Executor).steps
        return compose_config(
            Agent(
                weights=ctx.input(role) / "model",
                base=ctx.input("base") / "model",
                work=ctx.work / "verl",
                learning_rate=step_size(ctx, role)[0],
                max_prompt_tokens=min(longest, rollout.max_context_tokens // 2),
                steps=steps,
                gpus_per_node=self._split.training_per_node,
            ),
            ctx.section(Model),
            ctx.section(Optimiser),
            rollout,
            self._settings,
        )


def _start(config: DictConfig, loss: PolicyLoss) -> StageTrainer:
    config.transfer_queue.enable = True
    tq.init(config.transfer_queue)
    trainer = StageTrainer(config)
    trainer.start(loss)
    return trainer


def _frozen_models(ctx: StageContext) -> int:
    """Frozen models that play in a stage at the same time."""
    inputs = ctx.spec.inputs
    if ctx.spec.stage == "curriculum":
        return len({inputs["executor"], inputs.get("frozen", inputs["executor"])})
    if ctx.spec.stage == "executor":
        live_anchor = ctx.section(Executor).reference == "anchor"
        return int(live_anchor and not ctx.has_input("anchor_cache"))
    return 1
