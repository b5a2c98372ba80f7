"""What verl could not finish, without verl's processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import scripted

from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Stop, Trajectory

if TYPE_CHECKING:
    from training.trainers.verl.agent_loop import Order
    from training.trainers.verl.policy import VerlPolicy

pytestmark = pytest.mark.verl


class Thread:
    async def call(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


class Trainer:
    """Loses the first member of the second task ``failures`` times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.orders: list[tuple[Sequence[Order], int]] = []

    def wake(self) -> None: ...

    def order(self, orders: Sequence[Order], size: int) -> Sequence[Order]:
        self.orders.append((orders, size))
        return orders

    def collect(self, orders: Sequence[Order], size: int, _: float) -> list[dict[int, Any]]:
        groups = []
        for number, order in enumerate(orders):
            members = {m: (f"{len(self.orders)}-{number}-{m}", sampled(order)) for m in range(size)}
            if order.task == "b" and len(self.orders) <= self.failures:
                del members[0]
            groups.append(members)
        return groups


def sampled(order: Order) -> Trajectory:
    return Trajectory(
        task=order.task,
        prompt_ids=order.prompt_ids,
        output_ids=[1],
        mask=[1],
        logprobs=[0.0],
        turns=1,
        calls=[],
        status=Status.VALID,
        label="1",
        reason="",
        stop=Stop.EOS,
        seed=order.seed,
        text="1",
    )


def policy(folder: Path, trainer: Any) -> VerlPolicy:
    from training.trainers.verl.policy import VerlPolicy
    from training.trainers.verl.turns import Turns

    scripted.write_model(folder / "model")
    ctx: Any = SimpleNamespace(
        section=lambda kind: kind(), input=lambda _: folder, work=folder / "work"
    )
    thread: Any = Thread()
    return VerlPolicy(ctx, "curriculum", trainer, thread, Turns())


@pytest.mark.parametrize(("failures", "whole"), [(0, True), (1, True), (2, True), (3, False)])
async def test_it_is_sampled_again_twice_with_fresh_seeds_and_then_marked(
    tmp_path: Path, failures: int, whole: bool
) -> None:
    trainer = Trainer(failures)
    agent = policy(tmp_path, trainer)
    groups = await agent.rollout([Task("a", [1]), Task("b", [2])], 2, Sampling(), [5, 6])
    assert [[t.task for t in group] for group in groups] == [["a", "a"], ["b", "b"]]
    (lost, *others) = [groups[1][0], groups[1][1], *groups[0]]
    assert all(t.status is Status.VALID for t in others)
    assert (lost.status is Status.VALID) == whole
    assert whole or (lost.status, lost.text) == (Status.INFRA, "")
    assert [size for _, size in trainer.orders] == [2, 1, 1][: 1 + min(failures, 2)]
    seeds = [order.seed for orders, _ in trainer.orders for order in orders]
    assert len(set(seeds)) == len(seeds)
    known = {agent._keys.get(id(t)) for group in groups for t in group}
    assert (None in known) == (not whole)
