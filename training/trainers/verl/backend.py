"""The GPU backend: verl trains (FSDP2), vLLM samples, Ray places both.

The stage's process is the driver. It starts Ray on this machine, or joins the cluster that
RAY_ADDRESS names.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, ParamSpec, TypeVar

import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from verl.plugin.platform import get_platform
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.utils.device import get_device_name

from training.config import Curriculum, Executor, Model, Optimiser, Rollout, Trainer
from training.errors import ConfigError, InfraError, NumericError
from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Stop, Trajectory
from training.rollout.vllm_engine import VllmSettings, end_tokens
from training.sandbox.settings import SandboxSettings
from training.stages.base import StageContext
from training.trainers.backends import Role
from training.trainers.common import step_size
from training.trainers.samples import Sample, deal
from training.trainers.verl.agent_loop import Order
from training.trainers.verl.checkpoint import FolderCheckpoints
from training.trainers.verl.configure import Agent, compose_config
from training.trainers.verl.layout import split_gpus
from training.trainers.verl.loss import PolicyLoss
from training.trainers.verl.scoring import ScoringServers
from training.trainers.verl.trainer import StageTrainer

P = ParamSpec("P")
T = TypeVar("T")

_ROOT = Path(__file__).resolve().parents[3]


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
        backend.close()


class VerlBackend:
    """See `training.trainers.backends.Backend`."""

    def __init__(self, ctx: StageContext) -> None:
        self._ctx = ctx
        self._settings = ctx.section(Trainer)
        stage = ctx.spec.stage
        self._trains = stage in ("curriculum", "executor")
        self._split = split_gpus(self._settings, trains=self._trains, frozen=_frozen_models(ctx))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verl")
        self._scoring: list[ScoringServers] = []
        self._config = self._compose() if self._trains else None
        self._join_ray()

    async def policy(self, role: Role) -> "VerlPolicy":
        """See `training.trainers.backends.Backend.policy`."""
        assert self._config is not None, f"{self._ctx.spec.stage} trains nobody"
        optimiser = self._ctx.section(Optimiser)
        loss = PolicyLoss(step_size(self._ctx, role)[1], optimiser.kl_coefficient)
        trainer = await self.call(_start, self._config, loss)
        return VerlPolicy(self, self._ctx, role, trainer)

    async def frozen(self, artifact: Path) -> ScoringServers:
        """See `training.trainers.backends.Backend.frozen`."""
        rollout, model = self._ctx.section(Rollout), self._ctx.section(Model)
        servers = await ScoringServers.start(
            self._split.copies,
            self._settings.gpus_per_copy,
            self._settings.deadline_seconds,
            folder=str(artifact / "model"),
            settings=VllmSettings(
                dtype=model.dtype,
                max_context_tokens=rollout.max_context_tokens,
                tensor_parallel=self._settings.gpus_per_copy,
                plain=get_device_name() == "cpu",
                deadline_seconds=self._settings.deadline_seconds,
                remote_code=model.remote_code,
            ),
            sandbox=self._ctx.section(SandboxSettings) if rollout.tool else None,
            max_code_chars=rollout.max_code_chars,
            max_observation_tokens=rollout.max_observation_tokens,
        )
        self._scoring.append(servers)
        return servers

    async def metrics(self) -> dict[str, float]:
        """See `training.trainers.backends.Backend.metrics`; copies sample at the same time."""
        totals = [t for servers in self._scoring for t in await servers.metrics() if t]
        if not totals:
            return {}
        return {"engine_tokens_per_second": sum(t["tokens_per_second"] for t in totals)}

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do blocking work of verl on its thread, within the deadline.

        Raises `InfraError` when it takes longer.
        """
        loop = asyncio.get_running_loop()
        doing = loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                return await doing
        except TimeoutError:
            raise InfraError(
                f"verl did not finish within {self._settings.deadline_seconds:g} s "
                "(trainer.deadline_seconds); look at the log, then retry"
            ) from None

    def close(self) -> None:
        """End everything that was started; what verl's thread waits for ends with Ray."""
        ray.shutdown()
        self._thread.shutdown(wait=False, cancel_futures=True)

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

    def _join_ray(self) -> None:
        """Start Ray here, or join RAY_ADDRESS; workers find our code where this process has it."""
        options: dict[str, Any] = {}
        environment: dict[str, Any] = {"env_vars": {}}
        if self._config is not None:
            environment = OmegaConf.to_container(
                OmegaConf.create(get_ppo_ray_runtime_env(self._config))
            )  # type: ignore[assignment]
            given = self._config.ray_kwargs.get("ray_init", {})
            options = dict(OmegaConf.to_container(given))  # type: ignore[arg-type]
        else:
            prefix = "ray_kwargs.ray_init."
            named = {n.removeprefix("+"): value for n, value in self._settings.verl.items()}
            options = {
                name.removeprefix(prefix): value
                for name, value in named.items()
                if name.startswith(prefix)
            }
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["env_vars"] |= {
            "PYTHONPATH": os.pathsep.join(paths),
            "TRANSFER_QUEUE_ENABLE": "1",
        }
        options["runtime_env"] = environment
        # Told outright: left to itself, Ray joins whatever cluster it finds on this machine.
        options["address"] = os.environ.get("RAY_ADDRESS") or "local"
        if options["address"] != "local":
            for name in ("num_cpus", "num_gpus", "object_store_memory", "_temp_dir"):
                options.pop(name, None)  # the cluster's own
        ray.init(**options)


class VerlPolicy:
    """See `training.trainers.backends.Policy`: verl's trainer, and what its queue holds."""

    def __init__(
        self, backend: VerlBackend, ctx: StageContext, role: Role, trainer: StageTrainer
    ) -> None:
        self._backend, self._trainer = backend, trainer
        self._rollout = ctx.section(Rollout)
        self._optimiser = ctx.section(Optimiser)
        self._deadline = ctx.section(Trainer).deadline_seconds
        source = ctx.input(role) / "model"
        remote_code = ctx.section(Model).remote_code
        self._tokenizer = load_tokenizer(source, remote_code=remote_code)
        self._eos_ids = sorted(end_tokens(source, remote_code=remote_code))
        has_tool = role == "executor" and self._rollout.tool
        self._sandbox = ctx.section(SandboxSettings).model_dump() if has_tool else None
        self._checkpoints = FolderCheckpoints(ctx.work / "checkpoints")
        self._export = ctx.work / "export"
        self._keys: dict[int, str] = {}
        self._saved: Path | None = None  # the checkpoint that holds the weights as they are now

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]:
        """See `training.trainers.backends.Sampler.rollout`."""
        orders = [
            Order(
                task=task.id,
                prompt_ids=list(task.prompt_ids),
                seed=seed,
                sampling=asdict(sampling),
                eos_ids=self._eos_ids,
                context=self._rollout.max_context_tokens,
                deadline_seconds=self._deadline,
                max_code_chars=self._rollout.max_code_chars,
                max_observation_tokens=self._rollout.max_observation_tokens,
                sandbox=self._sandbox,
            )
            for task, seed in zip(tasks, seeds, strict=True)
        ]
        if not orders:
            return []
        names = await self._backend.call(self._trainer.order, orders, group_size)
        found = await self._backend.call(self._trainer.collect, names, group_size, self._deadline)
        groups = []
        for order, members in zip(orders, found, strict=True):
            for key, trajectory in members.values():
                self._keys[id(trajectory)] = key
            groups.append(
                [members[m][1] if m in members else _lost(order, m) for m in range(group_size)]
            )
        return groups

    async def restore(self) -> int:
        """See `training.trainers.backends.Policy.restore`."""
        found = self._checkpoints.newest()
        if found is None:
            return 0
        step, folder = found
        await self._backend.call(self._trainer.read_checkpoint, folder / "actor", step)
        self._saved = folder
        return step

    async def step(self, groups: Sequence[Sequence[Sample]], seed: int) -> dict[str, float]:
        """See `training.trainers.backends.Policy.step`.

        Raises `NumericError` after a step whose loss or gradient was not finite; verl leaves the
        weights untouched by it.
        """
        dealt = deal(groups, self._optimiser.mini_batches, seed)
        rows = [
            [(self._keys[id(s.trajectory)], s.advantage, s.clip_high) for s in step]
            for step in dealt
        ]
        raw = await self._backend.call(self._trainer.learn, rows)
        self._keys, self._saved = {}, None
        metrics = {ours: float(raw[theirs]) for theirs, ours in _METRICS.items() if theirs in raw}
        for name in ("loss", "grad_norm"):
            if not math.isfinite(metrics[name]):
                raise NumericError(f"{name} is {metrics[name]} in verl's update")
        tokens = sum(sum(s.trajectory.mask) for step in dealt for s in step)
        return metrics | {"tokens": float(tokens), "optimiser_steps": float(len(dealt))}

    async def save(self, step: int) -> None:
        """See `training.trainers.backends.Policy.save`."""
        self._saved = await self._backend.call(self._save, step)

    async def publish(self, folder: Path) -> None:
        """See `training.trainers.backends.Policy.publish`."""
        await self._backend.call(self._publish, folder)

    def _save(self, step: int) -> Path:
        return self._checkpoints.save(
            step, lambda place: self._trainer.write_checkpoint(place / "actor", step)
        )

    def _publish(self, folder: Path) -> None:
        source = self._saved
        if source is None:
            source = self._export
            rmtree(source, ignore_errors=True)
            self._trainer.write_checkpoint(source / "actor", self._trainer.global_steps)
        copytree(source / "actor" / "huggingface", folder)
        rmtree(self._export, ignore_errors=True)
        self._tokenizer.save_pretrained(folder)


_METRICS = {
    "actor/adpo/loss": "loss",
    "actor/adpo/policy_loss": "policy_loss",
    "actor/adpo/kl": "kl",
    "actor/adpo/ratio": "ratio",
    "actor/adpo/clip_low": "clip_low",
    "actor/adpo/clip_high": "clip_high",
    "actor/grad_norm": "grad_norm",
    "actor/entropy": "entropy",
    "training/rollout_actor_probs_pearson_corr": "rollout_correlation",
    "training/rollout_probs_diff_mean": "engine_gap",
}
"""verl's name of a metric → ours."""


def _start(config: DictConfig, loss: PolicyLoss) -> StageTrainer:
    config.transfer_queue.enable = True
    tq.init(config.transfer_queue)
    trainer = StageTrainer(config)
    trainer.start(loss)
    return trainer


def _lost(order: Order, member: int) -> Trajectory:
    """Stands for a trajectory that verl could not finish: a failure of our own machinery."""
    return Trajectory(
        task=order.task,
        prompt_ids=order.prompt_ids,
        output_ids=[],
        mask=[],
        logprobs=[],
        turns=0,
        calls=[],
        status=Status.INFRA,
        label=None,
        reason="the engine failed",
        stop=Stop.INFRA,
        seed=order.seed,
        text="",
    )


def _frozen_models(ctx: StageContext) -> int:
    """Frozen models that play in a stage at the same time."""
    inputs = ctx.spec.inputs
    if ctx.spec.stage == "curriculum":
        return len({inputs["executor"], inputs.get("frozen", inputs["executor"])})
    if ctx.spec.stage == "executor":
        live_anchor = ctx.section(Executor).reference == "anchor"
        return int(live_anchor and not ctx.has_input("anchor_cache"))
    return 1
