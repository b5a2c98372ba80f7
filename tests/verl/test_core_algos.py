"""Our algorithms against verl's own functions, on random tensors."""

import numpy as np
import pytest
import torch

from training.algorithms.adpo import adpo_loss
from training.algorithms.group_stats import normalise
from training.algorithms.kl import k3

pytestmark = [pytest.mark.verl, pytest.mark.timeout(120)]


def tensors(seed: int) -> tuple[torch.Tensor, ...]:
    """Log-probabilities (policy, sampling policy, base), mask and advantage of 6 sequences."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    logp = normal(6, 9) - 2
    mask = torch.rand(6, 9, generator=generator) < 0.6
    mask[:, 0] = True
    return logp, logp + 0.3 * normal(6, 9), logp + 0.5 * normal(6, 9), mask, normal(6)


@pytest.mark.parametrize("seed", range(3))
def test_the_grpo_loss_is_verls_vanilla_loss(seed: int) -> None:
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig

    logp, old, _, mask, advantage = tensors(seed)
    loss, metrics = adpo_loss(logp, old, None, mask, advantage, 0.28, 0.2, 0.0, n_sequences=6)
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=2,
        ppo_mini_batch_size=6,
        ppo_micro_batch_size_per_gpu=6,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=1e9,  # verl's third clip, which the method does not have
    )
    theirs, _ = get_policy_loss_fn("vanilla")(
        old_log_prob=old,
        log_prob=logp,
        advantages=advantage[:, None] * mask,
        response_mask=mask,
        loss_agg_mode="seq-mean-token-mean",
        config=config,
        rollout_is_weights=None,
    )
    assert float(loss) == pytest.approx(float(theirs), rel=1e-5)
    assert metrics["clip_low"] + metrics["clip_high"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_k3_is_verls_low_variance_kl(seed: int) -> None:
    from verl.trainer.ppo.core_algos import agg_loss, kl_penalty

    logp, _, base, mask, advantage = tensors(seed)
    theirs = kl_penalty(logp, base, "low_var_kl")
    torch.testing.assert_close(k3(logp, base), theirs)
    _, metrics = adpo_loss(
        logp, logp, k3(logp, base), mask, advantage, 0.2, 0.2, 0.1, n_sequences=6
    )
    mean = agg_loss(theirs, mask, "seq-mean-token-mean")
    assert metrics["kl"] == pytest.approx(float(mean), rel=1e-5)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_the_group_advantage_is_verls_grpo_advantage(size: int) -> None:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards = torch.rand(2 * size, generator=torch.Generator().manual_seed(size))
    token_rewards = torch.zeros(2 * size, 3)
    token_rewards[:, 1] = rewards
    names = np.array(["a"] * size + ["b"] * size, dtype=object)
    theirs, _ = compute_grpo_outcome_advantage(token_rewards, torch.ones(2 * size, 3), names)
    ours = [a for part in rewards.split(size) for a in normalise(part.tolist(), "sample", 1e-6)]
    assert ours == pytest.approx(theirs[:, 0].tolist(), rel=1e-4, abs=1e-6)
