"""The loss that verl's workers compute: ADPO, or GRPO with its constant clip width.

It is `algorithms.adpo.adpo_loss` on verl's tensors (docs/method.md section 5). Each row brings its
own `advantage` and `clip_high`, and the number of sequences whose mean the loss is.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from training.algorithms.adpo import adpo_loss
from training.algorithms.kl import k3

ROW_FIELDS = ("advantage", "clip_high", "n_sequences")
"""What every row holds beside verl's own fields, each [N, 1]."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A loss function for `set_loss_fn`; `beta` weighs the KL to the base model.

    Sequences are averaged over their own generated tokens and then over the `n_sequences` of
    their optimiser step (verl's `seq-mean-token-mean`), so the parts on all ranks and in all micro
    batches add up to the whole. verl averages gradients over the `dp_size` ranks, hence the
    factor. Rows that fill up a batch have an empty mask and contribute 0.
    """

    clip_low: float
    beta: float

    def __call__(
        self, model_output: dict[str, Any], data: TensorDict, dp_group: object = None
    ) -> tuple[Any, dict[str, Metric]]:
        """Loss and metrics of one micro batch."""
        logp = no_padding_2_padding(model_output["log_probs"], data)
        names = ["response_mask", "old_log_probs", *(["ref_log_prob"] if self.beta else [])]
        padded = data.select(*names).to_padded_tensor()
        loss, metrics = adpo_loss(
            logp,
            padded["old_log_probs"],
            k3(logp, padded["ref_log_prob"]) if self.beta else None,
            padded["response_mask"],
            _flat(data["advantage"]),
            _flat(data["clip_high"]),
            self.clip_low,
            self.beta,
            n_sequences=int(_flat(data["n_sequences"]).max()),
        )
        ranks = data["dp_size"]
        reported = {"loss": float(loss.detach()), **metrics}
        return loss * ranks, {
            f"adpo/{name}": Metric(AggregationType.SUM, value * ranks)
            for name, value in reported.items()
        }


def _flat(column: torch.Tensor) -> torch.Tensor:
    """One value a row, [N]; verl's queue hands columns back as nested tensors."""
    return (column.values() if column.is_nested else column).flatten()
