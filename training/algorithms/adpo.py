"""Ambiguity-dynamic policy optimisation (paper eqs. 13-18; docs/method.md section 5).

The same clipped loss with a constant clip width of 0.2 is the Curriculum's GRPO loss.
Tensors are used through their methods only, so reading a weight never loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

P_LOW = 0.3
P_HIGH = 0.8
WEIGHT_MIN = 0.6
CLIP_LOW = 0.2
CLIP_HIGH = 0.2
CLIP_HIGH_EXTRA = 0.1
LOG_RATIO_LIMIT = 20.0


def quality(p: float, p_low: float = P_LOW, p_high: float = P_HIGH) -> float:
    """Map the agreement ``p`` linearly from [p_low, p_high] to [0, 1], clipped (eq. 17).

    Raises ValueError if ``p`` is outside [0, 1].
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"an agreement lies in [0, 1], got {p}")
    return min(1.0, max(0.0, (p - p_low) / (p_high - p_low)))


def weight(
    p: float, *, weight_min: float = WEIGHT_MIN, p_low: float = P_LOW, p_high: float = P_HIGH
) -> float:
    """Return the task weight f(p), from ``weight_min`` at low agreement up to 1 (eq. 18)."""
    return weight_min + (1.0 - weight_min) * quality(p, p_low, p_high)


def clip_bounds(
    p: float,
    *,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
    clip_high_extra: float = CLIP_HIGH_EXTRA,
    p_low: float = P_LOW,
    p_high: float = P_HIGH,
) -> tuple[float, float]:
    """Return the lower and the upper clip width: ``clip_low`` and g(p) (eq. 18).

    The ratio may move in [1 - lower, 1 + upper]; the upper width is widest at low agreement.
    """
    return clip_low, clip_high + clip_high_extra * (1.0 - quality(p, p_low, p_high))


def adpo_loss(
    logp: Tensor,
    old_logp: Tensor,
    ref_kl: Tensor | None,
    mask: Tensor,
    advantage: Tensor,
    clip_high: Tensor | float,
    clip_low: Tensor | float,
    beta: float,
    *,
    n_sequences: int,
    entropy: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of eq. 16 for a part of a step, and its metrics.

    Args:
        logp: log-probabilities of the sampled tokens under the policy, [N, L], with gradient.
        old_logp: the same under the sampling policy, [N, L].
        ref_kl: KL to the base model a token, [N, L], with gradient; None leaves the term out.
        mask: 1 (or True) on generated tokens, 0 on prompt, observations and padding, [N, L].
        advantage: effective advantage a sequence, [N]: weighted for ADPO, plain for GRPO.
        clip_high, clip_low: widths above and below 1, [N] or one number.
        beta: KL coefficient.
        n_sequences: sequences in the whole step, however it is split into parts.
        entropy: entropy a token, [N, L], only reported.

    A sequence is the mean over its own generated tokens, one without any contributes 0; the loss
    is their sum over ``n_sequences``. Every group has the same size, so this is the mean over
    groups and tasks, and the losses, gradients and metrics of the parts of a step add up to those
    of the whole. Values under a zero mask are never read, whatever they hold. The log-ratio is
    held in [-20, 20] against overflow, as verl does.

    Metrics (same weighting): ``policy_loss``, ``kl``, ``ratio``, ``clip_low`` and ``clip_high``
    (share of tokens where that bound is active), and ``entropy`` if given.

    Raises ValueError for shapes that do not fit and for ``n_sequences`` below N.
    """
    n = logp.shape[0]
    for name, tensor in (("old_logp", old_logp), ("mask", mask), ("ref_kl", ref_kl)):
        if tensor is not None and tensor.shape != logp.shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, logp {list(logp.shape)}")
    if advantage.shape != (n,):
        raise ValueError(f"advantage has shape {list(advantage.shape)}, expected [{n}]")
    if n_sequences < n:
        raise ValueError(f"a step of {n_sequences} sequences cannot have a part of {n}")

    off = ~mask.bool()
    tokens = (~off).sum(-1).clamp(min=1)

    def step_mean(values: Tensor) -> Tensor:
        return (values.masked_fill(off, 0.0).sum(-1) / tokens).sum() / n_sequences

    ratio = (logp - old_logp.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    adv = advantage.detach().unsqueeze(-1)
    high = _column(clip_high, logp)
    low = _column(clip_low, logp)
    clipped = ratio.clamp(1.0 - low, 1.0 + high)
    surrogate = (ratio * adv).minimum(clipped * adv)
    policy_loss = -step_mean(surrogate)
    loss = policy_loss
    metrics = {
        "policy_loss": policy_loss,
        "ratio": step_mean(ratio),
        "clip_low": step_mean(((ratio < 1.0 - low) & (adv < 0)).to(logp.dtype)),
        "clip_high": step_mean(((ratio > 1.0 + high) & (adv > 0)).to(logp.dtype)),
    }
    if ref_kl is not None:
        kl = step_mean(ref_kl)
        loss = loss + beta * kl
        metrics["kl"] = kl
    if entropy is not None:
        metrics["entropy"] = step_mean(entropy)
    return loss, {name: float(value.detach()) for name, value in metrics.items()}


def _column(width: Tensor | float, like: Tensor) -> Tensor:
    """Return a clip width as a column that broadcasts over tokens: [N, 1], or [1, 1]."""
    if isinstance(width, (int, float)):
        return like.new_full((1, 1), float(width))
    return width.detach().to(like.dtype).unsqueeze(-1)
