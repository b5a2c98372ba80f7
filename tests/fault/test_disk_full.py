"""Fault 5: a disk that is really full, under a checkpoint, an artifact, metrics and the driver."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault import child
from tests.fault.fault_world import RUN, FaultWorld, same_run, same_stage

EXECUTOR, EVALUATION = "i1/executor", "i1/evaluation"
SIZE_MB = 160
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0777", "tmpfs", str(folder)]
    as_root = next((p for p in ([], ["sudo", "-n"]) if _done([*p, *mount])), None)
    if as_root is None:
        pytest.skip("a small file system cannot be mounted here: neither root nor sudo")
    try:
        yield folder
    finally:
        subprocess.run([*as_root, "umount", "--lazy", str(folder)], check=True)


def _done(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("place", "left", "kept"),
    [
        ("checkpoint", 200_000, ["step_1"]),
        ("half checkpoint", 200_000, ["step_1"]),
        ("checkpoint", 0, ["step_1"]),
        ("payload", 100_000, ["step_3", "step_4"]),
        ("metrics", 0, ["step_1"]),
    ],
)
def test_under_a_stage(
    reference: FaultWorld, disk: Path, place: str, left: int, kept: list[str]
) -> None:
    """A typed failure that names the remedy; what was whole stays; afterwards it goes on."""
    world = reference.copy(disk / "root", None, [EXECUTOR])
    folder, filler = world.place(EXECUTOR), disk / "filler"
    fault = f"full_disk:{place},{left},{filler}"
    if place != "payload":  # the first step passes
        assert child.run(folder, fault=f"die_in_checkpoint:{folder}/work/checkpoints,0") == -9
    status = child.run(folder, fault=fault)
    assert status == 1 or (status == 28 and left == 0)
    checkpoints = folder / "work" / "checkpoints"
    assert sorted(p.name for p in checkpoints.iterdir()) == kept
    if status == 1:
        failure = world.failure(EXECUTOR)
        assert failure["kind"] == "infra"
        assert not failure["again"]
        assert "`anchorloop clean` lists what may go" in failure["message"]
    assert not (folder / "artifact").exists()
    filler.unlink()
    assert child.run(folder) == 0
    same_stage(world, reference, EXECUTOR)


@pytest.mark.parametrize(
    "place",
    [
        "metrics",
        pytest.param("outcome", marks=pytest.mark.system),
        pytest.param("journal", marks=pytest.mark.system),
    ],
)
def test_under_the_driver(reference: FaultWorld, prefect: str, disk: Path, place: str) -> None:
    world = reference.copy(disk / "root", prefect, [EXECUTOR, EVALUATION])
    filler = disk / "filler"
    failed = world.cli(*RUN, FAULT=f"full_disk:{place},0,{filler}")
    assert failed.returncode == 1
    assert "`anchorloop clean` lists what may go" in failed.stderr.strip().splitlines()[-1]
    assert "Traceback" not in failed.stderr
    assert world.attempts(EXECUTOR) <= 1
    filler.unlink()
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    same_run(world, reference)


@pytest.mark.system
def test_under_the_prefect_server_too(reference: FaultWorld, disk: Path) -> None:
    """The databases of both servers lie on the full disk as well."""
    world = reference.copy(disk / "root", None, [EXECUTOR, EVALUATION])
    filler = disk / "filler"
    failed = world.cli(*RUN, FAULT=f"full_disk:metrics,0,{filler}")
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    filler.unlink()
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    same_run(world, reference)
