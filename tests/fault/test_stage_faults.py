"""Faults 4, 15, 16, 18 and 22, inside a stage's process and around it."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fault import child
from tests.fault.conftest import Copy
from tests.fault.fault_world import RUN, FaultWorld, same_run, same_stage, waits

EXECUTOR, EVALUATION = "i1/executor", "i1/evaluation"
pytestmark = pytest.mark.timeout(900)


def test_asked_to_stop_it_stops_and_resumes(copy: Copy, reference: FaultWorld) -> None:
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    never = place / "never"
    wait = f"wait_in_step:3,{never}"  # else it may be done before the signal comes
    assert child.signalled(signal.SIGTERM, lambda: waits(never), place, fault=wait) == 1
    assert world.failure(EXECUTOR)["kind"] == "interrupted"
    assert child.run(place) == 0
    same_stage(world, reference, EXECUTOR)


@pytest.mark.parametrize("fault", ["out_of_memory:2", "no_more_memory"])
def test_memory_that_cannot_be_had_is_named_with_what_helps(
    copy: Copy, reference: FaultWorld, fault: str
) -> None:
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    assert child.run(place, fault=fault) == 1
    failure = world.failure(EXECUTOR)
    assert failure["kind"] == "out_of_memory"
    for remedy in ("optimiser.micro_batch_rows", "rollout.wave_rows", "max_context_tokens"):
        assert remedy in failure["message"]
    assert child.run(place) == 0
    same_stage(world, reference, EXECUTOR)


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """A memory control group of its own with a limit in bytes; fails where there is none."""
    for base, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = base / f"anchorloop-fault-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    pytest.fail("no control group can be made here: not root, or no memory controller")


@pytest.mark.system
def test_killed_by_the_kernel_for_want_of_memory(copy: Copy, reference: FaultWorld) -> None:
    """A real kill: the stage takes more than its control group has."""
    world = copy([EXECUTOR, EVALUATION])
    with control_group(2 << 30) as group:
        join = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        site = world.root / "site" / "sitecustomize.py"
        plain = site.read_text()
        site.write_text(join + plain)
        failed = world.cli(*RUN, FAULT="eat_memory")
        site.write_text(plain)
    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert f"{EXECUTOR} failed, out_of_memory: it was killed for want of memory" in last
    assert "optimiser.micro_batch_rows" in last
    assert world.attempts(EXECUTOR) == 1
    assert world.left() == []
    done = world.cli(*RUN)
    assert done.returncode == 0, done.stderr
    same_run(world, reference)


def test_a_clock_that_jumps_by_an_hour_changes_nothing(copy: Copy, reference: FaultWorld) -> None:
    """Forth and back at every look, in the driver and in the stages."""
    world = copy([EXECUTOR, EVALUATION])
    done = world.cli(*RUN, "--stage-hours", "0.5", FAULT="clock_jumps")
    assert done.returncode == 0, done.stderr
    for row in world.summary("r")["iterations"]:
        assert 0 < row["seconds"] < 1800
    same_run(world, reference)


def kill_supervisors(pid: int) -> int:
    """kill -9 to every process of the sandboxes under a stage; returns how many there were."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the one before it
            process.kill()
    return len(found)


def test_a_sandbox_killed_once_in_a_rollout_changes_nothing(
    copy: Copy, reference: FaultWorld
) -> None:
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    go_on = place / "go_on"
    process = child.start(place, fault=f"wait_in_step:2,{go_on}")
    assert process.pid is not None
    while not waits(go_on):
        assert process.is_alive()
        process.join(0.01)
    assert kill_supervisors(process.pid) >= 2
    go_on.touch()
    process.join(child.LIMIT_S)
    assert process.exitcode == 0
    same_stage(world, reference, EXECUTOR)


def test_a_sandbox_that_stays_dead_fails_the_stage_and_rewards_nothing(
    copy: Copy, reference: FaultWorld
) -> None:
    world = copy([EXECUTOR])
    place = world.place(EXECUTOR)
    go_on = place / "go_on"
    process = child.start(place, fault=f"wait_in_step:2,{go_on}")
    assert process.pid is not None
    while process.is_alive():
        if waits(go_on):
            kill_supervisors(process.pid)
            go_on.touch()
        process.join(0.01)
    assert process.exitcode == 1
    failure = world.failure(EXECUTOR)
    assert failure["kind"] == "infra"
    assert "sandbox" in failure["message"]
    ledger = (place / "work" / "ledger.jsonl").read_text().splitlines()
    expected = (reference.place(EXECUTOR) / "artifact" / "ledger.jsonl").read_text().splitlines()
    assert ledger == expected[: len(ledger)]
    assert child.run(place) == 0
    same_stage(world, reference, EXECUTOR)
