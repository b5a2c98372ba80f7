"""Drawing tokens: one counter-based random stream a row, and the inverse of the distribution.

A row's k-th generated token depends on the row's seed, on k and on its logits, never on which
other rows are in the batch or on what they drew.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 64


class Streams:
    """Uniform numbers in [0, 1): row i's k-th is the k-th of Philox keyed by `seeds[i]`."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._block = np.empty((len(seeds), _BLOCK))
        self._filled = np.zeros(len(seeds), dtype=np.int64)

    def take(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """For each of `rows`, the number after the first `counts` ones of its stream.

        Counts of one row must not go back beyond the last multiple of the block size.
        """
        for row in rows[counts >= self._filled[rows]]:
            self._block[row] = self._generators[row].random(_BLOCK)
            self._filled[row] += _BLOCK
        return self._block[rows, counts % _BLOCK]


def draw(
    logits: Tensor, uniforms: Tensor, temperature: float, top_p: float
) -> tuple[Tensor, Tensor]:
    """Tokens `[rows]` and their log-probabilities `[rows]` under the untempered softmax.

    `logits` is `[rows, vocabulary]` float32 and `uniforms` `[rows]` float64.  Temperature 0 takes
    the most likely token (the first of equals).  Otherwise the token is the first one, in the
    order of the vocabulary, whose cumulated probability exceeds the row's uniform number;
    `top_p` keeps the fewest most likely tokens that reach this share.
    """
    if temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, _log_softmax_at(logits, tokens)
    tempered = logits if temperature == 1 else logits / temperature
    probabilities = tempered.softmax(-1)
    kept = probabilities if top_p == 1 else _nucleus(probabilities, top_p)
    cumulated = kept.cumsum(-1, dtype=torch.float64)
    total = cumulated[:, -1:]
    target = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, -total))
    tokens = torch.searchsorted(cumulated, target, right=True).squeeze(-1)
    tokens = tokens.clamp_(max=logits.shape[-1] - 1)  # only rows of NaN reach the bound
    if temperature == 1:
        return tokens, probabilities.gather(-1, tokens[:, None]).squeeze(-1).log()
    return tokens, _log_softmax_at(logits, tokens)


def _log_softmax_at(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.gather(-1, tokens[:, None]).squeeze(-1) - logits.logsumexp(-1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities with everything outside the nucleus set to 0."""
    ordered, index = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    ordered = ordered.masked_fill(before >= top_p, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, index, ordered)
