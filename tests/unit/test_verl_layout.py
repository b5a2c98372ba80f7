"""The split of GPUs, the layout of an update's rows over ranks, and whole checkpoints."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training.config import Trainer
from training.errors import ConfigError, InfraError
from training.trainers.verl import checkpoint
from training.trainers.verl.checkpoint import FolderCheckpoints
from training.trainers.verl.layout import Gpu, GpuSplit, group_gpus, lay_out, split_gpus


@pytest.mark.parametrize(
    ("changes", "trains", "frozen", "split"),
    [
        ({}, True, 1, GpuSplit(4, 4)),
        ({}, True, 2, GpuSplit(4, 2)),
        ({}, True, 0, GpuSplit(8, 0)),
        ({}, False, 1, GpuSplit(0, 8)),
        ({"gpus_per_node": 4}, True, 2, GpuSplit(2, 1)),
        ({"gpus_per_node": 2}, True, 1, GpuSplit(1, 1)),
        ({"gpus_per_node": 2}, True, 2, GpuSplit(2, 2, shared=True)),
        ({"gpus_per_node": 1}, True, 0, GpuSplit(1, 0)),
        ({"gpus_per_node": 1}, True, 1, GpuSplit(1, 1, shared=True)),
        ({"gpus_per_node": 1}, True, 2, GpuSplit(1, 1, shared=True)),
        ({"nodes": 2, "gpus_per_node": 1}, True, 1, GpuSplit(1, 2, shared=True)),
        ({"scoring_gpus": 0}, True, 2, GpuSplit(8, 8, shared=True)),
        ({"scoring_gpus": 0, "gpus_per_copy": 2}, True, 1, GpuSplit(8, 4, shared=True)),
        ({"gpus_per_node": 1}, False, 1, GpuSplit(0, 1)),
        ({"nodes": 2}, True, 2, GpuSplit(4, 4)),
        ({"scoring_gpus": 2}, True, 1, GpuSplit(6, 2)),
        ({"gpus_per_copy": 2}, True, 2, GpuSplit(4, 1)),
    ],
)
def test_gpus_are_shared_out(
    changes: dict[str, Any], trains: bool, frozen: int, split: GpuSplit
) -> None:
    assert split_gpus(Trainer(**changes), trains=trains, frozen=frozen) == split


@pytest.mark.parametrize(
    ("changes", "frozen", "words"),
    [
        ({"scoring_gpus": 8}, 1, "leaves none to train.*0 to share them"),
        ({"gpus_per_node": 1, "gpus_per_copy": 2}, 1, "1 GPUs do not hold 1 frozen models of 2"),
        ({"nodes": 2, "scoring_gpus": 3}, 1, "evenly over 2 machines"),
        ({"scoring_gpus": 4, "gpus_per_copy": 4}, 2, "lower trainer.gpus_per_copy"),
    ],
)
def test_a_split_that_does_not_come_out_is_refused(
    changes: dict[str, Any], frozen: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        split_gpus(Trainer(**changes), trains=True, frozen=frozen)


def test_shared_copies_stay_on_one_machine() -> None:
    gpus = [Gpu(node, str(i)) for i in range(3) for node in ("a", "b")]
    groups = group_gpus(gpus, 2)
    assert groups == [[Gpu(node, "0"), Gpu(node, "1")] for node in ("a", "b")]
    assert group_gpus(gpus, 1) == [[gpu] for node in ("a", "b") for gpu in gpus if gpu.node == node]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_rows_are_dealt_evenly_and_each_once(ranks: int) -> None:
    rng = random.Random(ranks)
    steps = [[rng.randint(1, 500) for _ in range(rng.randint(1, 40))] for _ in range(3)]
    dealt = lay_out(steps, ranks)
    flat = [length for step in steps for length in step]
    sizes = {len(part) for rank in dealt for part in rank}
    assert len(dealt) == ranks
    assert len(sizes) == 1
    assert sizes.pop() * ranks < max(map(len, steps)) + ranks
    first = 0
    for number, step in enumerate(steps):
        rows = [row for rank in dealt for row in rank[number] if row is not None]
        assert sorted(rows) == list(range(first, first + len(step)))
        loads = [sum(flat[r] for r in rank[number] if r is not None) for rank in dealt]
        assert max(loads) - min(loads) <= max(step)
        first += len(step)


def fill(size: int) -> Any:
    def write(folder: Path) -> None:
        (folder / "actor").mkdir()
        (folder / "actor" / "weights").write_bytes(b"x" * size)

    return write


def test_two_whole_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = FolderCheckpoints(tmp_path)
    assert kept.newest() is None
    for step in (2, 4, 6):
        kept.save(step, fill(step))
    assert kept.steps() == [6, 4]
    newest = kept.newest()
    assert newest is not None
    assert (newest[1] / "actor" / "weights").read_bytes() == b"x" * 6


def test_a_damaged_or_unfinished_checkpoint_is_passed_over(tmp_path: Path) -> None:
    kept = FolderCheckpoints(tmp_path)
    kept.save(2, fill(9))
    kept.save(4, fill(9))
    (tmp_path / "step_4" / "actor" / "weights").write_bytes(b"y" * 9)
    (tmp_path / "step_6.partial").mkdir()
    newest = kept.newest()
    assert newest is not None
    assert newest[0] == 2

    def fail(_: Path) -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        kept.save(8, fail)
    assert kept.steps() == [4, 2]


def test_no_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = FolderCheckpoints(tmp_path)
    kept.save(2, fill(1000))
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: SimpleNamespace(free=900))
    with pytest.raises(InfraError, match="anchorloop clean"):
        kept.save(4, fill(1))
    assert [path.name for path in tmp_path.iterdir()] == ["step_2"]
