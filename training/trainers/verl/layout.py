"""How GPUs are shared out, and how the rows of an update are laid out over ranks; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.config import Trainer
from training.errors import ConfigError

RESIDENT_FROM = 4
"""GPUs that train from which on the training state of the profiles stays on them; fewer 80 GB ones
do not hold it beside what samples, so that it waits in the machine's memory."""


@dataclass(frozen=True)
class GpuSplit:
    """GPUs of each machine that train, and sampling copies of each frozen model (0: none).

    `shared`: the copies are on the GPUs that train, and whoever has no turn sleeps.
    """

    training_per_node: int
    copies: int
    shared: bool = False


@dataclass(frozen=True)
class Gpu:
    """One GPU: the machine, by Ray's name, and the device there."""

    node: str
    device: str


def split_gpus(trainer: Trainer, *, trains: bool, frozen: int) -> GpuSplit:
    """Share out the GPUs of a stage that trains or not, and plays with `frozen` models.

    A stage that does both gives `scoring_gpus` to the frozen models; by default half of all, or
    none where half does not hold them. With none they are shared. A stage that does one of both
    gives it everything. A model that trains samples on its own GPUs.

    Raises `ConfigError`, naming the numbers and what to change, where that does not come out.
    """
    nodes, node, copy = trainer.nodes, trainer.gpus_per_node, trainer.gpus_per_copy
    total = nodes * node
    if not frozen:
        return GpuSplit(node, 0)
    scoring = total
    if trains:
        half = total // 2
        scoring = half if half >= frozen * copy and (total - half) % nodes == 0 else 0
        if trainer.scoring_gpus is not None:
            scoring = trainer.scoring_gpus
        if scoring >= total:
            raise ConfigError(
                f"trainer.scoring_gpus {scoring} of {total} GPUs leaves none to train; name fewer, "
                "or 0 to share them all"
            )
        if (total - scoring) % nodes:
            raise ConfigError(
                f"trainer.scoring_gpus {scoring} leaves {total - scoring} GPUs to train, which do "
                f"not spread evenly over {nodes} machines"
            )
    copies = nodes * (node // copy) if scoring == 0 else scoring // (frozen * copy)
    if not copies:
        raise ConfigError(
            f"{scoring or total} GPUs do not hold {frozen} frozen models of {copy} GPUs each; "
            "raise trainer.scoring_gpus or lower trainer.gpus_per_copy"
        )
    return GpuSplit((total - scoring) // nodes, copies, shared=scoring == 0)


def group_gpus(gpus: Sequence[Gpu], size: int) -> list[list[Gpu]]:
    """Groups of `size` GPUs of one machine, as many as there are; what is left over is not used."""
    groups = []
    for node in dict.fromkeys(gpu.node for gpu in gpus):
        here = [gpu for gpu in gpus if gpu.node == node]
        groups += [here[i : i + size] for i in range(0, len(here) - size + 1, size)]
    return groups


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
