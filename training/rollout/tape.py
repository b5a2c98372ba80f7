"""What the rows of one `sample` call have written so far."""

import numpy as np
from numpy.typing import NDArray

from training.rollout.engine import Finish, Sampled

_WIDTH = 64  # output tokens a row has room for at first; doubled when full


class Tape:
    """Per row the tokens after the prompt; `written`, `generated` and `in_turn` count them.

    `in_turn` counts generated tokens since the last observation.
    """

    def __init__(self, rows: int) -> None:
        self.written = np.zeros(rows, dtype=np.int64)
        self.generated = np.zeros(rows, dtype=np.int64)
        self.in_turn = np.zeros(rows, dtype=np.int64)
        self._ids = np.zeros((rows, _WIDTH), dtype=np.int64)
        self._mask = np.zeros((rows, _WIDTH), dtype=np.int8)
        self._logprobs = np.zeros((rows, _WIDTH))

    def write(
        self,
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
        logprobs: NDArray[np.float64],
        sampled: NDArray[np.bool_],
    ) -> None:
        """Append one token to each of `rows` (distinct); `sampled` is False for observations."""
        at = self.written[rows]
        if at.size and at.max() >= self._ids.shape[1]:
            self._widen()
        self._ids[rows, at] = tokens
        self._mask[rows, at] = sampled
        self._logprobs[rows, at] = logprobs
        self.written[rows] += 1
        self.generated[rows] += sampled
        self.in_turn[rows] += sampled

    def ids(self, row: int) -> list[int]:
        ids: list[int] = self._ids[row, : self.written[row]].tolist()
        return ids

    def turn_ids(self, row: int) -> list[int]:
        """The tokens generated since the last observation."""
        end = self.written[row]
        ids: list[int] = self._ids[row, end - self.in_turn[row] : end].tolist()
        return ids

    def record(self, row: int, finish: Finish) -> Sampled:
        end = self.written[row]
        return Sampled(
            ids=self.ids(row),
            mask=self._mask[row, :end].tolist(),
            logprobs=self._logprobs[row, :end].tolist(),
            finish=finish,
        )

    def _widen(self) -> None:
        self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)], axis=1)
        self._mask = np.concatenate([self._mask, np.zeros_like(self._mask)], axis=1)
        self._logprobs = np.concatenate([self._logprobs, np.zeros_like(self._logprobs)], axis=1)
