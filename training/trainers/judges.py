"""The fixed Executor and its anchor, who play the Curriculum's candidates (method section 3)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from training.config import Curriculum, Rollout
from training.prompts import PromptBook
from training.rollout.tool_loop import Task
from training.seeds import derive_seed
from training.stages.base import StageContext
from training.trainers.backends import Backend, Sampler
from training.trainers.common import Group, InfraGuard, executor_sampling


@dataclass(frozen=True, slots=True)
class Judgement:
    """The groups of one candidate; `reference` is None where the run has none."""

    current: Group
    reference: Group | None


class Judges:
    """Samples a current and a reference group for each format-valid candidate.

    Where the reward has a reference term (`enters_reward`), the reference is the anchor, and both
    groups are sampled independently even where its weights are the Executor's; they then share one
    pass. Where it has none, the reference may be a second group of the same Executor, for the gap
    statistic alone: it has a pass of its own, so that its time can be told apart. Made by
    `gather`.
    """

    def __init__(
        self, ctx: StageContext, prompts: PromptBook, current: Sampler, anchor: Sampler
    ) -> None:
        self._ctx = ctx
        self._rollout = ctx.section(Rollout)
        self._prompts = prompts
        self._sampling = executor_sampling(self._rollout)
        self._guard = InfraGuard(self._rollout.max_infra_share)
        self._diagnostic = ctx.section(Curriculum).diagnostic_reference
        self.enters_reward = ctx.has_input("frozen")
        self._current, self._anchor = current, anchor

    @classmethod
    async def gather(cls, ctx: StageContext, backend: Backend, prompts: PromptBook) -> Self:
        """The judges of a stage; the anchor is one of its own where its weights differ."""
        current = anchor = await backend.frozen(ctx.input("executor"))
        inputs = ctx.spec.inputs
        if ctx.has_input("frozen"):
            ctx.input("anchor")  # read so that the result names the anchor it was computed with
            if inputs["frozen"] != inputs["executor"]:
                anchor = await backend.frozen(ctx.input("frozen"))
        return cls(ctx, prompts, current, anchor)

    async def judge(
        self, step: int, problems: Mapping[int, str]
    ) -> tuple[dict[int, Judgement], dict[str, float]]:
        """Judgements by candidate, and seconds spent; incomplete candidates are left out.

        `problems` maps a candidate's index in its batch to its problem text.
        """
        size = self._rollout.group_size
        clock = time.monotonic()
        reference: dict[int, Group] | None = None
        if self.enters_reward and self._anchor is self._current:
            both = await self._sample(self._current, step, "both", problems, 2 * size)
            current = {i: group[:size] for i, group in both.items()}
            reference = {i: group[size:] for i, group in both.items()}
        else:
            current = await self._sample(self._current, step, "current", problems, size)
            if self.enters_reward:
                reference = await self._sample(self._anchor, step, "anchor", problems, size)
        seconds = {"seconds_judging": time.monotonic() - clock}
        if not self.enters_reward and self._diagnostic:
            clock = time.monotonic()
            reference = await self._sample(self._current, step, "diagnostic", problems, size)
            seconds["seconds_diagnostic"] = time.monotonic() - clock
        return {
            i: Judgement(group, None if reference is None else reference.get(i))
            for i, group in current.items()
            if not self.enters_reward or (reference is not None and i in reference)
        }, seconds

    async def _sample(
        self, sampler: Sampler, step: int, role: str, problems: Mapping[int, str], size: int
    ) -> dict[int, Group]:
        """Complete groups by candidate."""
        parts = (self._ctx.seed, "curriculum", self._ctx.iteration, step, role)
        tasks = [Task(f"b{step}-{i}", self._prompts.executor(p)) for i, p in problems.items()]
        seeds = [derive_seed(*parts, i) for i in problems]
        groups = self._guard.complete(await sampler.rollout(tasks, size, self._sampling, seeds))
        return {i: g for i, g in zip(problems, groups, strict=True) if g is not None}
