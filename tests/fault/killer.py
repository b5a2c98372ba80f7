"""kill -9 at random moments of a run, to its driver, its stage or its sandbox, until it is done."""

import contextlib
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

from tests.fault.fault_world import RUN, FaultWorld, same_run

LIMIT_S = 900


@dataclass
class Killings:
    """What was killed, how often, where; how many runs it took, and how many starts."""

    seed: int
    victims: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    starts: int = 0

    @property
    def total(self) -> int:
        return self.victims.total()


def kill_until(
    kills: int, seed: int, fresh: Callable[[], FaultWorld], reference: FaultWorld
) -> Killings:
    """Start the run again and again until it was killed that often; each end must be identical.

    Moments are uniform over what one start of the whole run takes, so that early and late ones
    have the same chance; a run that gets to its end is compared, and another one is begun.
    """
    chance = random.Random(seed)
    done = Killings(seed)
    seconds = sum(row["seconds"] for row in reference.summary("r")["iterations"][1:])
    while done.total < kills:
        world = fresh()
        done.runs += 1
        finished = False
        while not finished:
            done.starts += 1
            with _started(world) as process:
                while done.total < kills and not _ends_within(
                    process, chance.uniform(0.0, seconds)
                ):
                    victim, pids = _victim(process.pid, chance)
                    done.stages[_stage(world)] += 1
                    done.victims[victim] += 1
                    for pid in pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    if victim != "sandbox":
                        break
                process.wait(LIMIT_S)
                finished = process.returncode == 0
                told = (world.root / "killed.log").read_text()
                assert process.returncode in (0, 1, -9), told
                assert "Traceback" not in told, told
        same_run(world, reference)
    return done


@contextlib.contextmanager
def _started(world: FaultWorld) -> Iterator["subprocess.Popen[bytes]"]:
    with (
        (world.root / "killed.log").open("w") as output,
        subprocess.Popen(
            world.command(*RUN),
            cwd=world.root,
            env=world.environment,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        yield process


def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def _victim(driver: int, chance: random.Random) -> tuple[str, list[int]]:
    """One of the kinds of process that are there, and the processes of that kind."""
    found = {"driver": [driver]}
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(driver).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                line = child.cmdline()
                if "training.stages" in line:
                    found["stage"] = [child.pid]
                    found["sandbox"] = [p.pid for p in child.children(recursive=True)]
    kind = chance.choice(sorted(kind for kind, pids in found.items() if pids))
    return kind, found[kind]


def _stage(world: FaultWorld) -> str:
    """The stage that the driver was at, as far as it has said so."""
    told = (world.root / "killed.log").read_text().splitlines()
    at = [line.split()[1] for line in told if line.endswith(" started")]
    return at[-1] if at else "between stages"
