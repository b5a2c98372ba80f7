"""The trained Executor and whoever gives its reference group (docs/method.md sections 1 and 4)."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from transformers import PreTrainedTokenizerFast

from training.config import Executor, Rollout
from training.rollout.tool_loop import Task
from training.seeds import derive_seed
from training.stages.base import StageContext, read_jsonl
from training.trainers.backends import Backend, Policy, Sampler
from training.trainers.common import Group, InfraGuard, executor_sampling, prompt_book
from training.trainers.executor_groups import Labels


class Players:
    """Samples the current group of each task, and finds the labels of its reference group.

    The reference is cached anchor groups, the anchor itself sampled at every step, a second group
    of the policy (a control), or none. Made by `gather`.
    """

    def __init__(
        self,
        ctx: StageContext,
        tokenizer: PreTrainedTokenizerFast,
        policy: Policy,
        anchor: Sampler | None,
    ) -> None:
        self._ctx = ctx
        self._rollout = ctx.section(Rollout)
        self._size = self._rollout.group_size
        self._reference = ctx.section(Executor).reference
        self._prompts = prompt_book(ctx, tokenizer)
        self._sampling = executor_sampling(self._rollout)
        self._guard = InfraGuard(self._rollout.max_infra_share)
        self._cached = _cached_labels(ctx)
        self._policy, self._anchor = policy, anchor

    @classmethod
    async def gather(
        cls,
        ctx: StageContext,
        backend: Backend,
        policy: Policy,
        tokenizer: PreTrainedTokenizerFast,
    ) -> Self:
        """The players of a stage; the anchor plays only where its groups are not cached."""
        anchor = None
        if ctx.section(Executor).reference == "anchor" and not ctx.has_input("anchor_cache"):
            ctx.input("anchor")  # read so that the result names the anchor it was computed with
            anchor = await backend.frozen(ctx.input("frozen"))
        return cls(ctx, tokenizer, policy, anchor)

    async def play(
        self, step: int, tasks: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Group], dict[str, Labels]]:
        """Complete current groups and the labels of the reference groups, both by task id.

        Either lacks the tasks whose group our own machinery could not complete. A task without a
        cached anchor group is not played, since it could not be used.
        """
        if self._cached is not None:
            tasks = [task for task in tasks if task["id"] in self._cached]
            return await self._sample(self._policy, step, "current", tasks, 1), self._cached
        if self._reference == "second_group":
            both = await self._sample(self._policy, step, "both", tasks, 2)
            current = {name: group[: self._size] for name, group in both.items()}
            return current, {name: _labels(group[self._size :]) for name, group in both.items()}
        current = await self._sample(self._policy, step, "current", tasks, 1)
        if self._anchor is None:
            return current, {}
        fresh = await self._sample(self._anchor, step, "anchor", tasks, 1)
        return current, {name: _labels(group) for name, group in fresh.items()}

    async def _sample(
        self,
        sampler: Sampler,
        step: int,
        role: str,
        tasks: Sequence[Mapping[str, Any]],
        groups: int,
    ) -> dict[str, Group]:
        """As many groups a task, joined into one, by task id; incomplete ones are left out."""
        parts = (self._ctx.seed, "executor", self._ctx.iteration, step, role)
        sampled = await sampler.rollout(
            [Task(task["id"], self._prompts.executor(task["problem"])) for task in tasks],
            groups * self._size,
            self._sampling,
            [derive_seed(*parts, task["id"]) for task in tasks],
        )
        complete = zip(tasks, self._guard.complete(sampled), strict=True)
        return {task["id"]: group for task, group in complete if group is not None}


def _labels(group: Group) -> list[str | None]:
    return [trajectory.label for trajectory in group]


def _cached_labels(ctx: StageContext) -> dict[str, Labels] | None:
    """Labels of the anchor's groups by task id, or None where nothing was cached."""
    if not ctx.has_input("anchor_cache"):
        return None
    records = read_jsonl(ctx.input("anchor_cache") / "anchors.jsonl")
    return {record["task"]: record["labels"] for record in records}
