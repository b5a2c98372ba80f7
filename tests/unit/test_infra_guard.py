from types import SimpleNamespace
from typing import Any

import pytest

from training.errors import InfraError
from training.rollout.trajectory import Status
from training.trainers.common import InfraGuard


def group(size: int, failed: int = 0) -> Any:
    states = [Status.INFRA] * failed + [Status.VALID] * (size - failed)
    return [SimpleNamespace(status=status) for status in states]


def test_an_incomplete_group_is_taken_out_and_one_failure_of_a_small_batch_is_no_end() -> None:
    guard = InfraGuard(0.02)
    whole, broken = group(4), group(4, failed=2)
    assert guard.complete([whole, broken]) == [whole, None]
    with pytest.raises(InfraError, match="3 of 12 trajectories failed"):
        guard.complete([group(4, failed=1)])


def test_with_many_trajectories_the_share_counts() -> None:
    guard = InfraGuard(0.02)
    guard.complete([group(8, failed=1)] * 2)
    for _ in range(98):
        guard.complete([group(8)])
    assert guard.complete([group(8, failed=8)]) == [None]
    with pytest.raises(InfraError, match=r"17 of 816 .* rollout.max_infra_share 0.02"):
        guard.complete([group(8, failed=7)])
