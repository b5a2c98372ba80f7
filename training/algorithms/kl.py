"""KL divergence to the frozen base model, token by token (docs/method.md section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
K3_LIMIT = 10.0


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Estimate KL(policy || reference) from the sampled tokens alone.

    Args:
        logp, ref_logp: log-probabilities of the sampled tokens, any one shape, e.g. [N, L].

    Returns r - 1 - log r with r = exp(ref_logp - logp), of the same shape and never negative.
    The log-ratio is held in [-20, 20] and the result at 10 or less, as verl's ``low_var_kl`` does,
    so that both trainers optimise the same number.
    """
    log_ratio = (ref_logp - logp).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (log_ratio.exp() - 1.0 - log_ratio).clamp(-K3_LIMIT, K3_LIMIT)


def exact(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Return KL(policy || reference) over the whole vocabulary (the last term of eq. 16).

    Args:
        logits, ref_logits: finite scores, [..., V].

    Returns the divergence in nats, [...].
    """
    logp = logits.log_softmax(-1)
    return (logp.exp() * (logp - ref_logits.log_softmax(-1))).sum(-1)
