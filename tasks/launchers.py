"""Where a stage runs: a launcher starts ``python -m training.stages`` and hands back its process.

``local`` starts a subprocess, ``docker`` a container (``tasks.docker_launcher``).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.home import QUIET
from tasks.oom import oom_kills
from tasks.secrets import stage_environment

_LEASH = Path(__file__).with_name("leash.py")
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""One thread unless the user's environment says more: small models gain nothing from a second,
and spinning threads lose several times over when a neighbour is busy."""

DEFAULT_IMAGE = "anchorloop-gpu"
"""Name of the image that ``training/Dockerfile`` makes; ANCHORLOOP_IMAGE names another one."""

STOP_GRACE_S = 20.0
"""Seconds between the request to end (SIGTERM) and the end by force (SIGKILL)."""


@dataclass(frozen=True)
class Job:
    """One attempt at a stage: what to run and where its output goes."""

    stage: str
    spec: Path
    out: Path
    log: Path
    python: str = sys.executable
    """Interpreter of the stage, for the launcher ``local``."""
    run: str = ""
    """Name of the run that pays for the attempt."""
    run_id: str = ""
    """What tells this run from another one of the same name."""

    def command(self, python: str, module: str) -> list[str]:
        """The stage's command line, the same for every launcher."""
        tail = [self.stage, "--spec", str(self.spec), "--out", str(self.out)]
        return [python, "-m", module, *tail]


class Running(Protocol):
    """A stage that was started."""

    log: Path
    """What it prints."""

    @property
    def out_of_memory(self) -> bool:
        """Whether it is known to have been killed for want of memory; meaningful after its end."""
        ...

    def wait(self, seconds: float) -> int | None:
        """Wait at most so long; exit status, negative for a signal, or None while it runs."""
        ...

    def stop(self, grace: float = STOP_GRACE_S) -> None:
        """Ask it to end, then end it by force; returns when nothing of it is left."""
        ...


class Launcher(Protocol):
    """A place where stages run."""

    name: str

    def image(self) -> str | None:
        """Digest of the container image in use, or None where there is none.

        Raises ConfigError when the image is absent, InfraError when nobody can be asked.
        """
        ...

    def adopt(self, job: Job) -> Running | None:
        """The attempt that an earlier driver of this run left running, or None.

        What is left of one that ended is removed. Raises InfraError.
        """
        ...

    def start(self, job: Job) -> Running:
        """Start one attempt. Raises a StageError, or OSError, when it cannot be started."""
        ...


class LocalLauncher:
    """A subprocess on this machine: own process group, own log file, dies with the driver."""

    name = "local"

    def __init__(self, module: str = "training.stages") -> None:
        """``module`` is the program that honours the stage contract."""
        self._module = module

    def image(self) -> None:
        """None: a subprocess has no image."""

    def adopt(self, _job: Job) -> None:
        """None: a subprocess dies with its driver."""

    def start(self, job: Job) -> "LocalRunning":
        """Start the stage's process; see ``Launcher.start``."""
        stage = job.command(job.python, self._module)
        command = [sys.executable, str(_LEASH), str(os.getpid()), *stage]
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **THREADS,
                    **stage_environment(job.stage, os.environ),
                    **QUIET,
                    "PYTHONPATH": path,
                },
            )
        return LocalRunning(process, job.log)


class LocalRunning:
    """A stage's subprocess and its process group."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process, self.log = process, log
        self._oom_kills = oom_kills()

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed, and the kernel has killed for want of memory meanwhile."""
        killed = self._process.returncode == -signal.SIGKILL
        return killed and oom_kills() > self._oom_kills

    @property
    def pid(self) -> int:
        """Process id, also the id of the process group."""
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """Wait at most so long; see ``Running.wait``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def stop(self, grace: float = STOP_GRACE_S) -> None:
        """SIGTERM to the group, then SIGKILL; returns when the group is gone."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        self._signal(signal.SIGKILL)  # children may outlive a leader that ended in time
        self._process.wait()
        deadline = time.monotonic() + 5.0
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def _docker(image: str | None = None) -> Launcher:
    from tasks.docker_launcher import DockerLauncher  # needs a third of a second

    return DockerLauncher(default_image(image))


LAUNCHERS: dict[str, Callable[..., Launcher]] = {"local": LocalLauncher, "docker": _docker}


def default_image(image: str | None) -> str:
    """The image of the launcher ``docker``: the one given, ANCHORLOOP_IMAGE, or ours."""
    return image or os.environ.get("ANCHORLOOP_IMAGE") or DEFAULT_IMAGE


def default_launcher() -> str:
    """Launcher of a new run that names none: ANCHORLOOP_LAUNCHER, else ``local``."""
    return os.environ.get("ANCHORLOOP_LAUNCHER") or "local"


def launcher(name: str, image: str | None = None) -> Launcher:
    """The launcher of that name. Raises ValueError for an unknown one, or a needless image."""
    if name not in LAUNCHERS:
        known = ", ".join(sorted(LAUNCHERS))
        raise ValueError(f"launcher '{name}' does not exist; choose from {known}")
    if image is None:
        return LAUNCHERS[name]()
    if name != "docker":
        raise ValueError(f"launcher '{name}' takes no image; add --launcher docker")
    return LAUNCHERS[name](image)
