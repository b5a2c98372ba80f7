"""The policy-gradient step against a plain reading of the formula, and its limits."""

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from training.errors import NumericError
from training.rollout.trajectory import Status, Stop, Trajectory
from training.trainers.samples import Sample
from training.trainers.torch.update import PolicyUpdate, UpdateSettings

VOCABULARY = 23


def tiny(seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():  # the default initialisation is so small that everything is uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def settings(**changes: object) -> UpdateSettings:
    values: dict[str, object] = {
        "learning_rate": 1e-3,
        "beta": 0.05,
        "kl": "k3",
        "mini_batches": 1,
        "clip_low": 0.2,
        "gradient_clip": 1e9,
        "micro_batch_rows": 3,
        "weight_decay": 0.0,
        "betas": (0.9, 0.999),
    }
    return UpdateSettings(**{**values, **changes})  # type: ignore[arg-type]


def trajectory(seed: int, prompt: int, mask: Sequence[int]) -> Trajectory:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (prompt + len(mask),), generator=generator).tolist()
    return Trajectory(
        task=f"t{seed}",
        prompt_ids=ids[:prompt],
        output_ids=ids[prompt:],
        mask=list(mask),
        logprobs=[-1.0 * m for m in mask],
        turns=1,
        calls=[],
        status=Status.VALID,
        label="5",
        reason="",
        stop=Stop.EOS,
        seed=seed,
        text="",
    )


def groups() -> list[list[Sample]]:
    """Two tasks of three trajectories, with observations inside, and of different lengths."""
    masks = [
        [1, 1, 1],
        [1, 1, 0, 0, 1, 1],
        [1],
        [1, 0, 1, 1],
        [1] * 9,
        [1, 1, 1, 0, 0, 0, 1, 1],
    ]
    advantages = [0.9, -0.7, -0.2, 1.1, -0.6, -0.5]
    samples = [
        Sample(trajectory(i, 2 + i % 3, mask), a, 0.2 + 0.01 * i)
        for i, (mask, a) in enumerate(zip(masks, advantages, strict=True))
    ]
    return [samples[:3], samples[3:]]


def gradients(model: PreTrainedModel) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def weights(model: PreTrainedModel) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def plain_loss(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    tasks: Sequence[Sequence[Sample]],
    beta: float,
    kl: str,
    count_observations: bool = False,
) -> Tensor:
    """Eq. 16 token by token, one unpadded trajectory at a time, at a ratio of 1."""
    total = torch.zeros(())
    for group in tasks:
        for sample in group:
            t = sample.trajectory
            ids = torch.tensor([t.prompt_ids + t.output_ids])
            logp = policy(ids).logits[0].log_softmax(-1)
            ref = reference(ids).logits[0].log_softmax(-1).detach()
            terms = []
            for offset, (token, own) in enumerate(zip(t.output_ids, t.mask, strict=True)):
                if not own and not count_observations:
                    continue
                at = len(t.prompt_ids) + offset - 1
                ratio = (logp[at, token] - logp[at, token].detach()).exp()
                if kl == "exact":
                    divergence = (logp[at].exp() * (logp[at] - ref[at])).sum()
                else:
                    difference = ref[at, token] - logp[at, token]
                    divergence = difference.exp() - 1 - difference
                terms.append(-ratio * sample.advantage + beta * divergence)
            total = total + torch.stack(terms).mean() / len(group)
    return total / len(tasks)


@pytest.mark.parametrize("kl", ["k3", "exact"])
def test_the_step_is_the_formula(kl: str) -> None:
    policy, reference = tiny(0), tiny(1)
    expected = copy.deepcopy(policy)
    loss = plain_loss(expected, reference, groups(), 0.05, kl)
    torch.autograd.backward(loss)
    metrics = PolicyUpdate(policy, reference, settings(kl=kl)).step(groups(), seed=0)
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    torch.testing.assert_close(gradients(policy), gradients(expected), atol=1e-5, rtol=1e-4)
    assert metrics["grad_norm"] == pytest.approx(float(gradients(expected).norm()), rel=1e-4)
    assert metrics["tokens"] == sum(sum(s.trajectory.mask) for g in groups() for s in g)
    assert metrics["ratio"] == pytest.approx(1)
    assert metrics["clip_low"] == metrics["clip_high"] == 0


def test_observation_tokens_carry_no_gradient() -> None:
    policy, reference = tiny(0), tiny(1)
    wrong = copy.deepcopy(policy)
    loss = plain_loss(wrong, reference, groups(), 0.05, "k3", count_observations=True)
    torch.autograd.backward(loss)
    PolicyUpdate(policy, reference, settings()).step(groups(), seed=0)
    assert (gradients(policy) - gradients(wrong)).abs().max() > 1e-3

    silent = [[Sample(trajectory(9, 3, [0, 0, 0, 0]), 1.0, 0.2), groups()[0][0]]]
    alone = [[groups()[0][0]]]
    both, one = tiny(0), tiny(0)
    PolicyUpdate(both, reference, settings()).step(silent, seed=0)
    PolicyUpdate(one, reference, settings()).step(alone, seed=0)
    torch.testing.assert_close(gradients(both) * 2, gradients(one))


def test_a_step_without_any_generated_token_changes_nothing() -> None:
    policy = tiny(0)
    before = weights(policy)
    metrics = PolicyUpdate(policy, tiny(1), settings()).step(
        [[Sample(trajectory(9, 3, [0, 0]), 1.0, 0.2)]], seed=0
    )
    assert metrics["tokens"] == 0
    assert torch.equal(weights(policy), before)


@pytest.mark.parametrize("rows", [1, 2, 4, 100])
def test_a_split_batch_is_the_whole_batch(rows: int) -> None:
    whole, split, reference = tiny(0), tiny(0), tiny(1)
    expected = PolicyUpdate(whole, reference, settings(micro_batch_rows=6)).step(groups(), seed=0)
    found = PolicyUpdate(split, reference, settings(micro_batch_rows=rows)).step(groups(), seed=0)
    torch.testing.assert_close(gradients(split), gradients(whole), atol=1e-6, rtol=1e-4)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_equal_rewards_leave_only_the_kl_gradient() -> None:
    flat = [[Sample(s.trajectory, 0.0, s.clip_high) for s in g] for g in groups()]
    policy = tiny(0)
    before = weights(policy)
    metrics = PolicyUpdate(policy, None, settings(beta=0.0)).step(flat, seed=0)
    assert torch.equal(weights(policy), before)
    assert metrics["grad_norm"] == 0
    assert "kl" not in metrics

    # At the base model itself the KL and its gradient are 0; away from it they act.
    at_base = PolicyUpdate(tiny(1), tiny(1), settings(kl="exact")).step(flat, seed=0)
    assert at_base["kl"] == pytest.approx(0, abs=1e-6)
    assert at_base["grad_norm"] == pytest.approx(0, abs=1e-5)
    away = tiny(0)
    assert PolicyUpdate(away, tiny(1), settings(kl="exact")).step(flat, seed=0)["grad_norm"] > 1e-3
    later = PolicyUpdate(away, tiny(1), settings(kl="exact"))
    divergence = [later.step(flat, seed=0)["kl"] for _ in range(20)]
    assert divergence[-1] < divergence[0]


def test_k3_has_the_exact_kl_as_its_mean_over_the_policys_own_tokens() -> None:
    policy, reference = tiny(0), tiny(1)
    prompt = [3, 7, 2]
    shares = policy(torch.tensor([prompt])).logits[0, -1].softmax(-1).tolist()
    mean, exact = 0.0, set()
    for token, share in enumerate(shares):
        t = trajectory(0, 3, [1])
        t.prompt_ids, t.output_ids = prompt, [token]
        step = [[Sample(t, 0.0, 0.2)]]
        mean += share * PolicyUpdate(tiny(0), reference, settings()).step(step, seed=0)["kl"]
        update = PolicyUpdate(tiny(0), reference, settings(kl="exact"))
        exact.add(round(update.step(step, seed=0)["kl"], 4))
    assert len(exact) == 1
    assert mean == pytest.approx(exact.pop(), abs=1e-3)


def test_several_mini_batches_move_the_ratio_and_make_the_clip_act() -> None:
    def step(**changes: object) -> dict[str, float]:
        return PolicyUpdate(tiny(0), tiny(1), settings(learning_rate=0.05, **changes)).step(
            groups(), seed=0
        )

    one, two = step(), step(mini_batches=2)
    assert one["optimiser_steps"] == 1
    assert two["optimiser_steps"] == 2
    assert one["clip_low"] + one["clip_high"] == 0
    assert two["clip_low"] + two["clip_high"] > 0
    assert two["ratio"] != pytest.approx(1, abs=1e-3)
    assert step(mini_batches=9)["optimiser_steps"] == 2  # no more steps than tasks


def test_ratios_refer_to_the_policy_before_the_first_optimiser_step() -> None:
    policy, reference = tiny(0), tiny(1)
    tasks = groups()
    with torch.no_grad():
        for sample in (s for group in tasks for s in group):
            t = sample.trajectory
            logp = policy(torch.tensor([t.prompt_ids + t.output_ids])).logits[0].log_softmax(-1)
            for i, own in enumerate(t.mask):
                at = len(t.prompt_ids) + i - 1
                t.logprobs[i] = float(logp[at, t.output_ids[i]]) if own else 0.0
    update = PolicyUpdate(policy, reference, settings(mini_batches=2, learning_rate=0.05))
    assert update.step(tasks, seed=0)["engine_gap"] < 1e-5
    assert update.step(tasks, seed=0)["engine_gap"] > 1e-2  # the policy has moved since


def test_the_seed_deals_the_tasks_and_nothing_else_is_random() -> None:
    tasks = [[sample] for group in groups() for sample in group]

    def after(seed: int) -> Tensor:
        policy = tiny(0)
        PolicyUpdate(policy, tiny(1), settings(mini_batches=3)).step(tasks, seed=seed)
        return weights(policy)

    assert torch.equal(after(1), after(1))
    assert not torch.equal(after(1), after(2))


def test_an_update_raises_what_had_a_positive_advantage() -> None:
    policy = tiny(0)
    update = PolicyUpdate(policy, tiny(1), settings(beta=0.0, learning_rate=5e-3))
    good, bad = trajectory(1, 3, [1, 1, 1]), trajectory(2, 3, [1, 1, 1])

    def logp(t: Trajectory) -> float:
        with torch.no_grad():
            scores = policy(torch.tensor([t.prompt_ids + t.output_ids])).logits[0].log_softmax(-1)
        return sum(float(scores[2 + i, token]) for i, token in enumerate(t.output_ids))

    before = logp(good), logp(bad)
    for _ in range(10):
        update.step([[Sample(good, 1.0, 0.2), Sample(bad, -1.0, 0.2)]], seed=0)
    assert logp(good) > before[0]
    assert logp(bad) < before[1]


def test_the_gradient_is_clipped_to_its_norm() -> None:
    policy = tiny(0)
    metrics = PolicyUpdate(policy, tiny(1), settings(gradient_clip=0.01)).step(groups(), seed=0)
    assert metrics["grad_norm"] > 0.01
    assert float(gradients(policy).norm()) == pytest.approx(0.01, rel=1e-3)


def test_a_forward_pass_in_bfloat16_trains_float32_weights() -> None:
    policy, plain = tiny(0), tiny(0)
    coarse = PolicyUpdate(policy, tiny(1), settings(dtype=torch.bfloat16)).step(groups(), seed=0)
    fine = PolicyUpdate(plain, tiny(1), settings()).step(groups(), seed=0)
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert coarse["loss"] == pytest.approx(fine["loss"], abs=0.05)
    assert coarse["loss"] != fine["loss"]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_before_it_reaches_the_weights(poison: float) -> None:
    policy = tiny(0)
    update = PolicyUpdate(policy, tiny(1), settings())
    before = weights(policy)
    assert update.reference is not None
    update.reference.get_output_embeddings().weight.data.fill_(poison)
    with pytest.raises(NumericError, match=r"the loss is (nan|-?inf) on 3 trajectories"):
        update.step(groups(), seed=0)
    assert torch.equal(weights(policy), before)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_samples_that_are_not_finite_are_refused_with_their_task(poison: float) -> None:
    policy = tiny(0)
    update = PolicyUpdate(policy, tiny(1), settings())
    before = weights(policy)
    broken = [[Sample(s.trajectory, poison, 0.2) for s in g] for g in groups()]
    with pytest.raises(NumericError, match=r"advantage of task t0 is (nan|inf)"):
        update.step(broken, seed=0)
    unsure = groups()
    unsure[0][0].trajectory.logprobs[-1] = -poison
    with pytest.raises(NumericError, match=r"token of task t0 .* log-probability (nan|-inf)"):
        update.step(unsure, seed=0)
    assert torch.equal(weights(policy), before)


def test_a_policy_that_diverged_is_refused() -> None:
    policy = tiny(0)
    policy.get_output_embeddings().weight.data[1, 0] = math.nan
    with pytest.raises(NumericError, match="log-probabilities are not finite on"):
        PolicyUpdate(policy, tiny(1), settings()).step(groups(), seed=0)


def test_a_gradient_that_is_not_finite_is_refused_before_it_reaches_the_weights() -> None:
    policy = tiny(0)
    update = PolicyUpdate(policy, None, settings(beta=0.0))
    before = weights(policy)
    huge = [[Sample(groups()[0][0].trajectory, 1e37, 0.2)]]
    with pytest.raises(NumericError, match="gradients"):
        update.step(huge, seed=0)
    assert torch.equal(weights(policy), before)


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="reference"):
        PolicyUpdate(tiny(0), None, settings())
    update = PolicyUpdate(tiny(0), tiny(1), settings())
    with pytest.raises(ValueError, match="at least one group"):
        update.step([], seed=0)
    crooked = trajectory(0, 2, [1, 1])
    crooked.logprobs.pop()
    with pytest.raises(ValueError, match="task t0"):
        update.step([[Sample(crooked, 1.0, 0.2)]], seed=0)
