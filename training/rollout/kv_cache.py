"""Keys and values of a batch of rows, with the additive mask of the columns each row has filled."""

from collections.abc import Sequence

import torch
from torch import Tensor

MASKED = -1e30
"""Added to the scores of unfilled columns; finite, so that a row without any stays a number."""


class Cache:
    """`keys` and `values`: per layer `[rows * heads, columns, head_dim]`, rows first.

    Unfilled columns hold zeros, not leftovers: masked weights are 0, and 0 times NaN is not.
    """

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        heads: int,
        columns: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (rows * heads, columns, head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.rows, self.heads, self.columns = rows, heads, columns
        self._bias = torch.full((rows, columns), MASKED, dtype=dtype, device=device)
        self._row_starts = torch.arange(rows, device=device) * (heads * columns)
        self._head_starts = torch.arange(heads, device=device) * columns

    def cells(self, positions: Tensor) -> Tensor:
        """Index of each row's and head's cell at its position: `[rows * heads]` into all cells."""
        return ((self._row_starts + positions)[:, None] + self._head_starts).flatten()

    def admit(self, lengths: Tensor) -> None:
        """Unmask the first `lengths[row]` columns of each row."""
        columns = torch.arange(self.columns, device=self._bias.device)
        self._bias.masked_fill_(columns[None, :] < lengths[:, None], 0.0)

    def seen(self, positions: Tensor, used: int) -> Tensor:
        """Unmask one position a row; the mask `[rows * heads, 1, used]` to add to scores."""
        self._bias.scatter_(1, positions[:, None], 0.0)
        mask = self._bias[:, None, :used]
        return mask if self.heads == 1 else mask.repeat_interleave(self.heads, 0)

    def put(self, first: int, source: "Cache", rows: Sequence[int], columns: int) -> None:
        """Copy `rows` of another cache, up to `columns`, into the rows from `first` on."""
        index = torch.tensor(rows, dtype=torch.long, device=self._bias.device)
        here = slice(first, first + len(rows))
        self._bias[here, :columns] = source._bias[:, :columns].index_select(0, index)
        if self.heads > 1:
            lanes = torch.arange(self.heads, device=index.device)
            index = (index[:, None] * self.heads + lanes).flatten()
            here = slice(first * self.heads, (first + len(rows)) * self.heads)
        for mine, theirs in zip(
            [*self.keys, *self.values], [*source.keys, *source.values], strict=True
        ):
            mine[here, :columns] = theirs[:, :columns].index_select(0, index)
