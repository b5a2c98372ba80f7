"""ADPO's weight, clip and loss (docs/method.md section 5)."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.algorithms.adpo import adpo_loss, clip_bounds, quality, weight
from training.algorithms.kl import exact, k3

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("p", "q", "f", "g"),
    [
        (0.0, 0.0, 0.6, 0.3),
        (0.3, 0.0, 0.6, 0.3),
        (0.5, 0.4, 0.76, 0.26),
        (0.55, 0.5, 0.8, 0.25),
        (0.8, 1.0, 1.0, 0.2),
        (1.0, 1.0, 1.0, 0.2),
    ],
)
def test_weight_and_clip_by_agreement(p: float, q: float, f: float, g: float) -> None:
    assert quality(p) == pytest.approx(q)
    assert weight(p) == pytest.approx(f)
    assert clip_bounds(p) == (0.2, pytest.approx(g))


def test_limits_are_parameters() -> None:
    assert quality(0.5, 0.5, 1.0) == 0.0
    assert weight(0.0, weight_min=0.1) == pytest.approx(0.1)
    assert clip_bounds(0.0, clip_low=0.1, clip_high=0.3, clip_high_extra=0.5) == (0.1, 0.8)


@pytest.mark.parametrize("p", [-0.01, 1.01, math.nan])
def test_an_agreement_outside_its_range_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="agreement lies in"):
        weight(p)


@given(st.floats(0, 1), st.floats(0, 1))
def test_weight_never_falls_and_clip_never_grows_with_agreement(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert weight(low) <= weight(high)
    assert clip_bounds(low)[1] >= clip_bounds(high)[1]


def make(n: int = 4, length: int = 6, seed: int = 0):  # type: ignore[no-untyped-def]
    """A random step in float64: (logp, old_logp, ref_kl, mask, advantage, clip_high)."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    logp = (-2 * draw(n, length)).requires_grad_()
    old = logp.detach() + 0.8 * (draw(n, length) - 0.5)
    ref = logp.detach() + 0.5 * (draw(n, length) - 0.5)
    mask = draw(n, length) > 0.3
    return logp, old, ref, mask, draw(n) - 0.5, 0.2 + 0.1 * draw(n)


def loss_of(step, n_sequences=None, rows=slice(None)):  # type: ignore[no-untyped-def]
    logp, old, ref, mask, adv, high = step
    part = logp[rows]
    return adpo_loss(
        part, old[rows], k3(part, ref[rows]), mask[rows], adv[rows], high[rows], 0.2, 0.01,
        n_sequences=n_sequences or logp.shape[0],
    )  # fmt: skip


def test_golden_of_one_token_at_ratio_one() -> None:
    logp = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    adv = torch.tensor([0.5, -1.5], dtype=torch.float64)
    mask = torch.ones(2, 1)
    loss, metrics = adpo_loss(logp, logp.detach(), None, mask, adv, 0.2, 0.2, 0.01, n_sequences=2)
    loss.backward()
    assert loss.item() == pytest.approx(0.5)  # -(0.5 - 1.5) / 2
    assert logp.grad.flatten().tolist() == pytest.approx([-0.25, 0.75])
    assert metrics == pytest.approx(
        {"policy_loss": 0.5, "ratio": 1.0, "clip_low": 0.0, "clip_high": 0.0}
    )


@pytest.mark.parametrize(
    ("ratio", "adv", "value", "grows", "share"),
    [
        (1.5, 1.0, 1.3, False, "clip_high"),  # gain capped at 1 + g
        (1.25, 1.0, 1.25, True, None),  # inside 1 + g, though outside 1.2
        (1.5, -1.0, -1.5, True, None),  # a worse ratio is never clipped away
        (0.5, -1.0, -0.8, False, "clip_low"),
        (0.5, 1.0, 0.5, True, None),
    ],
)
def test_each_side_of_the_clip(
    ratio: float, adv: float, value: float, grows: bool, share: str | None
) -> None:
    logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    loss, metrics = adpo_loss(
        logp,
        torch.zeros(1, 1, dtype=torch.float64),
        None,
        torch.ones(1, 1),
        torch.tensor([adv], dtype=torch.float64),
        torch.tensor([0.3], dtype=torch.float64),
        0.2,
        0.0,
        n_sequences=1,
    )
    loss.backward()
    assert loss.item() == pytest.approx(-value)
    assert (logp.grad.item() != 0) == grows
    assert {name for name in ("clip_low", "clip_high") if metrics[name]} == {share} - {None}


def test_loss_agrees_with_a_plain_loop() -> None:
    step = make(5, 7, seed=3)
    logp, old, ref, mask, adv, high = step
    total = 0.0
    for i in range(5):
        tokens = [t for t in range(7) if mask[i, t]]
        for t in tokens:
            rho = math.exp(logp[i, t].item() - old[i, t].item())
            bounded = min(max(rho, 0.8), 1 + high[i].item())
            surrogate = min(rho * adv[i].item(), bounded * adv[i].item())
            d = ref[i, t].item() - logp[i, t].item()
            total += (-surrogate + 0.01 * (math.exp(d) - 1 - d)) / len(tokens)
    assert loss_of(step)[0].item() == pytest.approx(total / 5, rel=1e-12)


def test_split_batches_add_up_to_the_whole() -> None:
    whole, parts = make(6, 5, seed=1), make(6, 5, seed=1)
    loss, metrics = loss_of(whole)
    loss.backward()
    sums = dict.fromkeys(metrics, 0.0)
    total = 0.0
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        part, part_metrics = loss_of(parts, 6, rows)
        part.backward()
        total += part.item()
        sums = {name: sums[name] + part_metrics[name] for name in sums}
    assert total == pytest.approx(loss.item(), rel=1e-12)
    assert sums == pytest.approx(metrics, rel=1e-12)
    assert torch.allclose(parts[0].grad, whole[0].grad, rtol=1e-12, atol=0)
    assert all(metrics[name] > 0 for name in ("clip_low", "clip_high", "kl"))


def test_masked_tokens_and_padding_change_nothing_whatever_they_hold() -> None:
    logp, old, ref, mask, adv, high = make(3, 4, seed=2)
    plain, metrics = loss_of((logp, old, ref, mask, adv, high))
    plain.backward()
    hole = torch.full((3, 2), torch.nan, dtype=torch.float64)
    blank = torch.where(mask, old, -torch.inf)
    kl = torch.where(mask, k3(logp, ref).detach(), torch.nan)
    wide = torch.cat([logp.detach(), hole], 1).requires_grad_()
    padded, padded_metrics = adpo_loss(
        wide,
        torch.cat([blank, hole], 1),
        torch.cat([kl, hole], 1),
        torch.cat([mask, torch.zeros(3, 2, dtype=torch.bool)], 1),
        adv, high, 0.2, 0.0, n_sequences=3,
    )  # fmt: skip
    padded.backward()
    assert padded_metrics == pytest.approx(metrics, rel=1e-12)
    assert wide.grad.isfinite().all()
    assert (wide.grad[:, 4:] == 0).all()
    assert (wide.grad[:, :4][~mask] == 0).all()


def test_a_sequence_without_generated_tokens_contributes_nothing() -> None:
    step = list(make(3, 4, seed=4))
    step[3][1] = False
    loss, _ = loss_of(step)
    loss.backward()
    rest = [tensor[[0, 2]] for tensor in step]
    assert loss.item() == pytest.approx(loss_of(rest, 3)[0].item(), rel=1e-12)
    assert (step[0].grad[1] == 0).all()


def test_equal_rewards_leave_only_the_kl_gradient() -> None:
    logp, old, _, mask, _, high = make(seed=5)
    zero = torch.zeros(4, dtype=torch.float64)
    loss, _ = adpo_loss(logp, old, None, mask, zero, high, 0.2, 0.01, n_sequences=4)
    loss.backward()
    assert (logp.grad == 0).all()


def test_a_long_and_a_short_sequence_weigh_the_same() -> None:
    logp = torch.zeros(2, 8, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(2, 8)
    mask[0], mask[1, 0] = 1, 1
    adv = torch.ones(2, dtype=torch.float64)
    adpo_loss(logp, logp.detach(), None, mask, adv, 0.2, 0.2, 0.0, n_sequences=2)[0].backward()
    assert logp.grad.sum(1).tolist() == pytest.approx([-0.5, -0.5])


def test_gradient_in_double_precision() -> None:
    logp, old, ref, mask, adv, high = make(3, 4, seed=6)
    f = lambda x: adpo_loss(  # noqa: E731
        x, old, k3(x, ref), mask, adv, high, 0.2, 0.1, n_sequences=3
    )[0]
    ratio = (logp - old).detach().exp()
    for kink in (torch.full_like(high, 0.8), 1 + high):  # the loss has no derivative there
        assert ((ratio - kink.unsqueeze(-1)).abs() > 1e-4).all()
    assert torch.autograd.gradcheck(f, (logp,))


def test_a_constant_clip_width_is_the_grpo_loss() -> None:
    logp, old, _, mask, adv, _ = make(seed=7)
    constant = torch.full_like(adv, 0.2)
    number, _ = adpo_loss(logp, old, None, mask, adv, 0.2, 0.2, 0.0, n_sequences=4)
    tensor, _ = adpo_loss(logp, old, None, mask, adv, constant, constant, 0.0, n_sequences=4)
    assert number.item() == tensor.item()


def test_entropy_is_reported_with_the_same_weighting_and_trains_nothing() -> None:
    logp, old, _, mask, adv, high = make(seed=8)
    plain, _ = adpo_loss(logp, old, None, mask, adv, high, 0.2, 0.0, n_sequences=4)
    ones = torch.ones_like(old)
    loss, metrics = adpo_loss(
        logp, old, None, mask, adv, high, 0.2, 0.0, n_sequences=4, entropy=ones
    )
    assert metrics["entropy"] == pytest.approx(1.0)
    assert loss.item() == plain.item()


def test_a_runaway_ratio_stays_finite() -> None:
    logp = torch.tensor([[500.0]], requires_grad=True)
    minus = torch.tensor([-1.0])
    loss, _ = adpo_loss(
        logp, torch.zeros(1, 1), None, torch.ones(1, 1), minus, 0.2, 0.2, 0.0, n_sequences=1
    )
    assert math.isfinite(loss.item())


def test_shapes_that_do_not_fit_are_refused() -> None:
    logp, old, _, mask, adv, high = make(4, 6)
    with pytest.raises(ValueError, match=r"mask has shape \[4, 5\], logp \[4, 6\]"):
        adpo_loss(logp, old, None, mask[:, :5], adv, high, 0.2, 0.0, n_sequences=4)
    with pytest.raises(ValueError, match=r"advantage has shape \[3\], expected \[4\]"):
        adpo_loss(logp, old, None, mask, adv[:3], high, 0.2, 0.0, n_sequences=4)
    with pytest.raises(ValueError, match="step of 3 sequences cannot have a part of 4"):
        adpo_loss(logp, old, None, mask, adv, high, 0.2, 0.0, n_sequences=3)


def test_k3_goldens_and_its_limits() -> None:
    logp = torch.tensor([0.0, math.log(2), 0.0, 0.0], dtype=torch.float64)
    ref = torch.tensor([0.0, 0.0, 9.0, -50.0], dtype=torch.float64)
    expected = [0.0, 0.5 - 1 + math.log(2), 10.0, 10.0]
    assert k3(logp, ref).tolist() == pytest.approx(expected)


def test_exact_kl_agrees_with_torch_and_vanishes_for_equal_models() -> None:
    g = torch.Generator().manual_seed(9)
    a, b = (torch.randn(2, 3, 11, generator=g, dtype=torch.float64) for _ in range(2))
    reference = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
    )
    assert torch.allclose(exact(a, b), reference)
    assert exact(a, a + 3.0).abs().max() < 1e-12


def test_k3_is_an_unbiased_estimate_of_the_exact_kl() -> None:
    g = torch.Generator().manual_seed(10)
    a, b = (0.5 * torch.randn(7, generator=g, dtype=torch.float64) for _ in range(2))
    logp, ref = a.log_softmax(-1), b.log_softmax(-1)
    assert (logp.exp() * k3(logp, ref)).sum().item() == pytest.approx(exact(a, b).item())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(-5, 5))
def test_policy_gradient_is_linear_in_a_positive_advantage_scale(seed: int, scale: float) -> None:
    logp, old, _, mask, adv, high = make(2, 3, seed)
    factor = math.exp(scale)
    base, _ = adpo_loss(logp, old, None, mask, adv, high, 0.2, 0.0, n_sequences=2)
    scaled, _ = adpo_loss(logp, old, None, mask, factor * adv, high, 0.2, 0.0, n_sequences=2)
    assert scaled.item() == pytest.approx(factor * base.item(), rel=1e-9, abs=1e-12)
