"""Keys and values of a batch of rows, with the additive mask of the columns each row has filled."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MASKED = -1e30
"""Added to the scores of unfilled columns; finite, so that a row without any stays a number."""


@dataclass(slots=True)
class Cache:
    """Per layer `[rows, kv_heads, columns, head_dim]`; `bias` is `[rows, columns]`, 0 or MASKED."""

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor

    @classmethod
    def empty(
        cls,
        layers: int,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> "Cache":
        """Zeros, all columns masked.  Zeros matter: a masked column still multiplies its values."""
        return cls(
            keys=[torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)],
            values=[torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)],
            bias=torch.full((shape[0], shape[2]), MASKED, dtype=dtype, device=device),
        )

    @property
    def rows(self) -> int:
        return self.bias.shape[0]

    @property
    def columns(self) -> int:
        return self.bias.shape[1]

    def admit(self, lengths: Tensor) -> None:
        """Unmask the first `lengths[row]` columns of each row."""
        columns = torch.arange(self.columns, device=self.bias.device)
        self.bias.masked_fill_(columns[None, :] < lengths[:, None], 0.0)

    def put(self, first: int, source: "Cache", rows: Sequence[int], columns: int) -> None:
        """Copy `rows` of another cache, up to `columns`, into the rows from `first` on."""
        index = torch.tensor(rows, dtype=torch.long, device=self.bias.device)
        here = slice(first, first + len(rows))
        for mine, theirs in zip(
            [*self.keys, *self.values], [*source.keys, *source.values], strict=True
        ):
            mine[here, :, :columns] = theirs[:, :, :columns].index_select(0, index)
        self.bias[here, :columns] = source.bias[:, :columns].index_select(0, index)
