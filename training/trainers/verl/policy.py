"""The agent under training: verl's trainer, and what its queue holds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree, rmtree

from training.config import Model, Optimiser, Rollout, Trainer
from training.disk import need_room
from training.errors import NumericError
from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Stop, Trajectory
from training.rollout.vllm_engine import end_tokens
from training.sandbox.settings import SandboxSettings
from training.seeds import derive_seed
from training.stages.base import StageContext
from training.trainers.backends import Role
from training.trainers.samples import Sample, deal, require_finite
from training.trainers.verl.agent_loop import Order
from training.trainers.verl.checkpoint import FolderCheckpoints
from training.trainers.verl.thread import VerlThread
from training.trainers.verl.trainer import StageTrainer
from training.trainers.verl.turns import Turns

_ATTEMPTS = 3  # one sampling and two resamplings after failures of our own machinery


class VerlPolicy:
    """See `training.trainers.backends.Policy`.

    It has its turn on its GPUs to sample; while it learns nobody has.
    """

    def __init__(
        self,
        ctx: StageContext,
        role: Role,
        trainer: StageTrainer,
        thread: VerlThread,
        turns: Turns,
    ) -> None:
        self._trainer, self._thread, self._turns = trainer, thread, turns
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
        """See `training.trainers.backends.Sampler.rollout`.

        What verl could not finish is ordered again, twice, with fresh seeds.
        """
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
        async with self._turns.of(self):
            groups = await self._sample(orders, group_size)
            for attempt in range(1, _ATTEMPTS):
                places = [(i, m) for i, g in enumerate(groups) for m, t in enumerate(g) if not t]
                seeds = [derive_seed(orders[i].seed, m, attempt) for i, m in places]
                again = [
                    replace(orders[i], seed=s) for (i, _), s in zip(places, seeds, strict=True)
                ]
                if not again:
                    break
                for (i, m), (found,) in zip(places, await self._sample(again, 1), strict=True):
                    groups[i][m] = found
        return [
            [trajectory or _lost(order) for trajectory in group]
            for order, group in zip(orders, groups, strict=True)
        ]

    async def _sample(self, orders: list[Order], size: int) -> list[list[Trajectory | None]]:
        """A group of each order; None for a member that verl could not finish."""
        names = await self._thread.call(self._trainer.order, orders, size)
        groups = await self._thread.call(self._trainer.collect, names, size, self._deadline)
        for members in groups:
            self._keys |= {id(trajectory): key for key, trajectory in members.values()}
        return [
            [members[m][1] if m in members else None for m in range(size)] for members in groups
        ]

    async def restore(self) -> int:
        """See `training.trainers.backends.Policy.restore`."""
        found = self._checkpoints.newest()
        if found is None:
            return 0
        step, folder = found
        async with self._turns.of(None):
            await self._thread.call(self._trainer.read_checkpoint, folder / "actor", step)
        self._saved = folder
        return step

    async def step(self, groups: Sequence[Sequence[Sample]], seed: int) -> dict[str, float]:
        """See `training.trainers.backends.Policy.step`.

        Raises `NumericError` before the update for an advantage or log-probability that is not
        finite, and after a step whose loss or gradient was not; verl leaves the weights untouched
        by it.
        """
        require_finite(groups)
        dealt = deal(groups, self._optimiser.mini_batches, seed)
        rows = [
            [(self._keys[id(s.trajectory)], s.advantage, s.clip_high) for s in step]
            for step in dealt
        ]
        async with self._turns.of(None):
            raw = await self._thread.call(self._trainer.learn, rows)
        self._keys, self._saved = {}, None
        metrics = {ours: float(raw[theirs]) for theirs, ours in _METRICS.items() if theirs in raw}
        for name in ("loss", "grad_norm"):
            if not math.isfinite(metrics[name]):
                raise NumericError(f"{name} is {metrics[name]} in verl's update")
        tokens = sum(sum(s.trajectory.mask) for step in dealt for s in step)
        return metrics | {"tokens": float(tokens), "optimiser_steps": float(len(dealt))}

    async def save(self, step: int) -> None:
        """See `training.trainers.backends.Policy.save`."""
        async with self._turns.of(None):
            self._saved = await self._thread.call(self._save, step)

    async def publish(self, folder: Path) -> None:
        """See `training.trainers.backends.Policy.publish`."""
        async with self._turns.of(None):
            await self._thread.call(self._publish, folder)

    async def sleep(self) -> None:
        """See `training.trainers.verl.turns.Sleeper`."""
        await self._thread.call(self._trainer.sleep)

    async def wake(self) -> None:
        """See `training.trainers.verl.turns.Sleeper`; its servers get the newest weights."""
        await self._thread.call(self._trainer.wake)

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
        weights = source / "actor" / "huggingface"
        size = sum(path.stat().st_size for path in weights.rglob("*") if path.is_file())
        need_room(folder.parent, size, "the artifact with its weights")
        copytree(weights, folder)
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


def _lost(order: Order) -> Trajectory:
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
