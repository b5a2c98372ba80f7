"""One policy-gradient step: GRPO for the Curriculum, ADPO for the Executor.

Paper eq. 16; docs/method.md section 5. Both losses are `algorithms.adpo.adpo_loss`; they differ in
the advantages and clip widths that the caller hands over with each sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from training.algorithms.adpo import adpo_loss
from training.algorithms.kl import exact, k3
from training.errors import NumericError
from training.trainers.samples import Sample, deal, require_finite
from training.trainers.torch.batch import Batch, collate, micro_batches


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """What a step needs besides its samples.

    `beta` weighs the KL to the base model, estimated by `kl`; `mini_batches` optimiser steps are
    made from one rollout; `clip_low` is the width of the lower clip; gradients are clipped to the
    norm `gradient_clip`; `micro_batch_rows` bounds the samples of one forward pass and changes
    memory and speed, but the update only by rounding; `dtype` is that of the forward pass, while
    the weights, their updates and the log-probabilities stay in float32.
    """

    learning_rate: float
    beta: float
    kl: Literal["k3", "exact"]
    mini_batches: int
    clip_low: float
    gradient_clip: float
    micro_batch_rows: int
    weight_decay: float
    betas: tuple[float, float]
    dtype: torch.dtype = torch.float32


class PolicyUpdate:
    """A policy, its optimiser and the frozen base model that its KL refers to.

    The policy is trained in evaluation mode: dropout would make it differ from the policy that
    sampled. `reference` may be None only where `beta` is 0.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        reference: PreTrainedModel | None,
        settings: UpdateSettings,
    ) -> None:
        if reference is None and settings.beta:
            raise ValueError(f"a KL coefficient of {settings.beta} needs a reference model")
        self.policy = policy.eval()
        self.reference = reference.eval().requires_grad_(False) if reference else None
        self.settings = settings
        self.optimiser = torch.optim.AdamW(
            policy.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )

    def step(self, groups: Sequence[Sequence[Sample]], seed: int) -> dict[str, float]:
        """Update the policy from one rollout and return the metrics of the update.

        Groups are never split between optimiser steps, so the loss of each stays a mean over whole
        tasks; a seeded shuffle deals them to `mini_batches` steps, fewer where there are fewer
        groups. Ratios refer to the policy as it was when this method was called.

        Metrics are means over the optimiser steps, except `grad_norm` (the largest, before
        clipping) and `tokens` (generated tokens seen). `engine_gap` is the mean absolute difference
        between the log-probabilities that were noted while sampling and the trainer's own.

        Raises `NumericError` before the weights are touched when an advantage, a log-probability,
        the loss or a gradient is not finite, and `ValueError` when there is no group.
        """
        if not groups:
            raise ValueError("an update needs at least one group")
        require_finite(groups)
        dealt = deal(groups, self.settings.mini_batches, seed)
        count = len(dealt)
        old = self._frozen_logps(dealt) if count > 1 else None
        steps = [self._optimise(samples, old) for samples in dealt]
        keys = {key: None for s in steps for key in s}
        metrics = {key: sum(s.get(key, 0.0) for s in steps) / count for key in keys}
        metrics["grad_norm"] = max(s["grad_norm"] for s in steps)
        metrics["tokens"] = sum(s["tokens"] for s in steps)
        metrics["optimiser_steps"] = float(count)
        return metrics

    def _frozen_logps(self, dealt: Sequence[Sequence[Sample]]) -> dict[int, Tensor]:
        """Log-probabilities of each sample's generated tokens before the first optimiser step."""
        frozen: dict[int, Tensor] = {}
        with torch.no_grad():
            for samples in dealt:
                for part in micro_batches(samples, self.settings.micro_batch_rows):
                    batch = collate(part, self.policy.device)
                    logp = _chosen(self._logits(self.policy, batch), batch)
                    pieces = logp.split(batch.mask.sum(-1).tolist())
                    frozen.update((id(s), piece) for s, piece in zip(part, pieces, strict=True))
        return frozen

    def _optimise(
        self, samples: Sequence[Sample], old: dict[int, Tensor] | None
    ) -> dict[str, float]:
        """One optimiser step on the mean loss of `samples`."""
        self.optimiser.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        tokens, gap = 0, 0.0
        for part in micro_batches(samples, self.settings.micro_batch_rows):
            batch = collate(part, self.policy.device)
            logits = self._logits(self.policy, batch)
            logp = _chosen(logits, batch)
            if not torch.isfinite(logp).all():
                raise NumericError(f"log-probabilities are not finite on {_where(part)}")
            # With one optimiser step the policy is still the one that sampled: the ratio is 1.
            old_logp = torch.cat([old[id(s)] for s in part]) if old else logp.detach()
            loss, metrics = adpo_loss(
                _spread(logp, batch.mask),
                _spread(old_logp, batch.mask),
                self._kl(logits, logp, batch),
                batch.mask,
                batch.advantage,
                batch.clip_high,
                self.settings.clip_low,
                self.settings.beta,
                n_sequences=len(samples),
                entropy=_spread(_entropy(logits.detach()), batch.mask),
            )
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NumericError(f"the loss is {value} on {_where(part)}")
            torch.autograd.backward(loss)
            for key, amount in {"loss": value, **metrics}.items():
                sums[key] = sums.get(key, 0.0) + amount
            tokens += logp.numel()
            gap += float((old_logp - batch.sampled[batch.mask]).abs().sum())
        norm = self._clipped_norm()
        self.optimiser.step()
        return {
            **sums,
            "grad_norm": norm,
            "tokens": float(tokens),
            "engine_gap": gap / max(tokens, 1),
        }

    def _clipped_norm(self) -> float:
        """Clip the gradients and return their norm before that."""
        norm = float(
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.settings.gradient_clip)
        )
        if not math.isfinite(norm):
            raise NumericError(f"the norm of the gradients is {norm}")
        return norm

    def _kl(self, logits: Tensor, logp: Tensor, batch: Batch) -> Tensor | None:
        """KL to the base model a token, [N, T - 1], or None where it has no weight."""
        if self.reference is None or not self.settings.beta:
            return None
        with torch.no_grad():
            ref_logits = self._logits(self.reference, batch)
        if self.settings.kl == "exact":
            return _spread(exact(logits, ref_logits), batch.mask)
        return _spread(k3(logp, _chosen(ref_logits, batch)), batch.mask)

    def _logits(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        """Scores of the generated positions only, [tokens, V] in float32.

        The head is the largest matrix of a small model, so prompts and observations skip it.
        """
        with torch.autocast(
            batch.inputs.device.type,
            dtype=torch.bfloat16,
            enabled=self.settings.dtype == torch.bfloat16,
        ):
            hidden = model.base_model(input_ids=batch.inputs, use_cache=False).last_hidden_state
            logits: Tensor = model.get_output_embeddings()(hidden[batch.mask])
        return logits.float()


def _where(part: Sequence[Sample]) -> str:
    tasks = sorted({sample.trajectory.task for sample in part})
    return (
        f"{len(part)} trajectories of up to {part[0].length} tokens (tasks {', '.join(tasks[:4])})"
    )


def _chosen(logits: Tensor, batch: Batch) -> Tensor:
    """Log-probabilities of the tokens that were generated, [tokens]."""
    targets = batch.targets[batch.mask].unsqueeze(-1)
    return logits.log_softmax(-1).gather(-1, targets).squeeze(-1)


def _entropy(logits: Tensor) -> Tensor:
    """Entropy of the next-token distribution in nats, [tokens]."""
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Put one value a generated token back to its place, [N, T - 1], with 0 elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
