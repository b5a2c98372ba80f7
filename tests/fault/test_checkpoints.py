"""Faults 1, 2, 6 and 19: a stage that dies while it writes, and bytes that change on the disk."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.fault import child
from tests.fault.conftest import Copy
from tests.fault.fault_world import FaultWorld, same_stage

EXECUTOR = "i1/executor"
pytestmark = pytest.mark.timeout(900)
IN_CHECKPOINT = (
    *(f"die_in_checkpoint:{{checkpoints}},{share}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
    "die_between_data_and_manifest",
    "die_between_manifest_and_rename",
)
IN_PUBLICATION = ("die_before_publishing", "die_before_manifest", "die_before_rename")


def test_killed_at_each_quartile_of_a_checkpoint_and_around_its_manifest(
    copy: Copy, reference: FaultWorld
) -> None:
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    checkpoints = place / "work" / "checkpoints"
    written = []
    for fault in IN_CHECKPOINT:
        assert child.run(place, fault=fault.format(checkpoints=checkpoints)) == -9
        assert sorted(p.name for p in checkpoints.iterdir()) == ["step_1", "step_2.partial"]
        written.append((checkpoints / "step_2.partial" / "state.pt").stat().st_size)
    whole = (checkpoints / "step_1" / "state.pt").stat().st_size
    assert written == [*(whole * k // 4 for k in range(5)), whole, whole]
    assert child.run(place) == 0
    assert sorted(p.name for p in checkpoints.iterdir()) == ["step_3", "step_4"]
    assert world.attempts(EXECUTOR) == len(IN_CHECKPOINT) + 1
    same_stage(world, reference, EXECUTOR)


def test_killed_at_the_last_boundary_and_at_each_step_of_publication(
    copy: Copy, reference: FaultWorld
) -> None:
    """Resumed with all steps done, the stage makes no other step and does not end without one."""
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    for fault in IN_PUBLICATION:
        assert child.run(place, fault=fault) == -9
        assert (place / "work" / "checkpoints" / "step_4").exists()
        assert not (place / "artifact").exists()
    assert child.run(place) == 0
    assert world.store.result(world.identities[EXECUTOR])["steps"] == 4
    same_stage(world, reference, EXECUTOR)


@pytest.fixture(scope="module")
def interrupted(reference: FaultWorld, tmp_path_factory: pytest.TempPathFactory) -> FaultWorld:
    """An Executor stage killed after its third step, with two checkpoints."""
    world = reference.copy(tmp_path_factory.mktemp("interrupted") / "root", None, [EXECUTOR])
    place = world.place(EXECUTOR)
    first, third = (place / "work" / "checkpoints" / f"step_{n}" for n in (1, 3))
    when = lambda: third.exists() and not first.exists()  # noqa: E731
    wait = f"wait_in_step:4,{place / 'never'}"  # else it may be done before the signal comes
    assert child.signalled(signal.SIGKILL, when, place, fault=wait) == -9
    return world


@pytest.mark.parametrize("damage", ["flip", "flip all", "truncate", "delete"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    interrupted: FaultWorld, reference: FaultWorld, tmp_path: Path, damage: str
) -> None:
    world = FaultWorld(tmp_path / "root")
    shutil.copytree(interrupted.root, world.root, dirs_exist_ok=True)
    place = world.place(EXECUTOR)
    states = sorted((place / "work" / "checkpoints").glob("step_[0-9]/state.pt"), reverse=True)
    assert len(states) == 2
    for state in states if damage == "flip all" else states[:1]:
        if damage.startswith("flip"):
            flip(state)
        elif damage == "truncate":
            os.truncate(state, state.stat().st_size - 1)
        else:
            state.unlink()
    assert child.run(place) == 0
    log = (place / "work" / "logs" / "attempt_2" / "stage.log").read_text()
    assert f"checkpoint {states[0].parent.name} is damaged and not used" in log
    same_stage(world, reference, EXECUTOR)


def flip(path: Path) -> None:
    """Change one bit in the middle of a file, and leave its size and time stamps as they were."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(stat.st_size // 2)
        byte = file.read(1)
        file.seek(stat.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("changed", ["i0/base_model", "i1/task_pool"])
def test_a_bit_lost_in_an_input_is_seen_before_any_step(
    copy: Copy, reference: FaultWorld, changed: str
) -> None:
    """Fault 21 for the base model, which is the anchor of the first iteration."""
    entry = "i1/curriculum" if changed == "i0/base_model" else EXECUTOR
    world = copy([entry])
    place = world.place(entry)
    assert world.store.verify(world.identities[changed]) is not None  # notes the time stamps
    artifact = world.place(changed) / "artifact"
    file = next(artifact.rglob("*.safetensors" if "model" in changed else "tasks.jsonl"))
    flip(file)
    assert child.run(place, entry.partition("/")[2]) == 1
    failure = world.failure(entry)
    assert failure["kind"] == "infra"
    assert "its bytes do not match its manifest" in failure["message"]
    assert not (place / "work" / "metrics.jsonl").exists()
    assert world.store.verify(world.identities[changed]) is None  # so the next run rebuilds it
    flip(file)
    assert child.run(place, entry.partition("/")[2]) == 0
    same_stage(world, reference, entry)
