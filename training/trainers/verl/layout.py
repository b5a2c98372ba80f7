"""How GPUs are shared out, and how the rows of an update are laid out over ranks; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.config import Trainer
from training.errors import ConfigError


@dataclass(frozen=True)
class GpuSplit:
    """GPUs of each machine that train, and sampling copies of each frozen model (0: none)."""

    training_per_node: int
    copies: int


def split_gpus(trainer: Trainer, *, trains: bool, frozen: int) -> GpuSplit:
    """Share out the GPUs of a stage that trains or not, and plays with `frozen` models.

    A stage that does both gives `scoring_gpus` to the frozen models, by default half of all; one
    that does one of them gives it everything. A model that trains samples on its own GPUs.

    Raises `ConfigError`, naming the numbers and what to change, where that does not come out.
    """
    total, copy = trainer.nodes * trainer.gpus_per_node, trainer.gpus_per_copy
    if not frozen:
        return GpuSplit(trainer.gpus_per_node, 0)
    scoring = total
    if trains:
        scoring = total // 2 if trainer.scoring_gpus is None else trainer.scoring_gpus
        if not 0 < scoring < total:
            raise ConfigError(
                f"{total} GPUs cannot be split into {total - scoring} that train and {scoring} on "
                "which frozen models play; give the stage at least 2 GPUs, or another "
                "trainer.scoring_gpus"
            )
        if (total - scoring) % trainer.nodes:
            raise ConfigError(
                f"trainer.scoring_gpus {scoring} leaves {total - scoring} GPUs to train, which do "
                f"not spread evenly over {trainer.nodes} machines"
            )
    copies = scoring // (frozen * copy)
    if not copies:
        raise ConfigError(
            f"{scoring} GPUs do not hold {frozen} frozen models of {copy} GPUs each; raise "
            "trainer.scoring_gpus or lower trainer.gpus_per_copy"
        )
    return GpuSplit((total - scoring) // trainer.nodes, copies)


def lay_out(steps: Sequence[Sequence[int]], ranks: int) -> list[list[list[int | None]]]:
    """Rows of each optimiser step, dealt to ranks: `[rank][step]`, None for a filling row.

    `steps` holds, for each optimiser step, the lengths of its rows; the result holds indices into
    the rows of all steps in their order. Every rank gets as many rows of every step as any other,
    since verl cuts a batch into equal parts: the longest rows are dealt first, in turns.
    """
    size = max(-(-len(lengths) // ranks) for lengths in steps)
    dealt: list[list[list[int | None]]] = [[] for _ in range(ranks)]
    first = 0
    for lengths in steps:
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        rows: list[int | None] = [first + row for row in order]
        rows += [None] * (size * ranks - len(rows))
        for rank in range(ranks):
            dealt[rank].append(rows[rank::ranks])
        first += len(lengths)
    return dealt
