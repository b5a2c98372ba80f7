"""The sandbox of a stage in a container: supervisors in containers of their own, beside it.

Stage and supervisors see one folder. The stage listens there, a free supervisor dials, and when it
ends the engine starts a fresh one. They are removed with the stage's container; if nobody is left
to do so, they end by themselves.
"""

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

from tasks.launchers import Job
from training.errors import ConfigError, InfraError
from training.sandbox.isolation import container_problem, container_words
from training.sandbox.settings import SandboxSettings
from training.spec import StageSpec

BESIDE = "anchorloop.beside"
"""Label, of supervisors and of their stage's container, with the folder that they share."""
_SPARE = 1
"""One more than are used at once: a lost one is replaced while the engine starts another."""
_SAMPLING_WORKERS = 2
"""Processes of verl that play the model in training. They, and each copy of a frozen model, have a
sandbox of their own."""
_CALL_S = 120.0


def wanted(spec: StageSpec, in_cluster: bool) -> SandboxSettings | None:
    """The settings of the supervisors beside this stage; None where it is to use bubblewrap.

    So it is without the image, where the user says so, and on the machines of a Ray cluster.
    Raises ConfigError where only a container will do and none can be had.
    """
    if "sandbox" not in spec.config or not spec.config["rollout"]["tool"] or in_cluster:
        return None
    values = {**spec.config["sandbox"], **spec.runtime.get("sandbox", {})}
    settings = SandboxSettings.model_validate(values)
    if settings.isolation not in ("auto", "container"):
        return None
    problem = container_problem(settings.image)
    if problem and settings.isolation == "container":
        raise ConfigError(f"sandbox.isolation 'container' cannot be had: {problem}")
    return None if problem else settings


def start_beside(
    job: Job, spec: StageSpec, settings: SandboxSettings, more: Iterable[str] = ()
) -> Path:
    """Start the supervisors of one attempt at a stage; returns the folder they share with it.

    ``more`` are further folders to be seen read-only. Raises InfraError where one does not start.
    """
    folder = job.out / "work" / f"sandbox-{uuid.uuid4().hex[:12]}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)  # the stage may be another user; the store around it is ours alone
    labels = {
        BESIDE: str(folder),
        "anchorloop.run": job.run,
        "anchorloop.run-id": job.run_id,
        "anchorloop.stage": job.stage,
        "anchorloop.identity": job.out.name,
    }
    options = [word for item in labels.items() for word in ("--label", "=".join(item))]
    options += [word for path in more for word in ("--volume", f"{path}:{path}:ro")]
    try:
        for _ in range(settings.workers * _sandboxes(spec) + _SPARE):
            _start_one([*options, *container_words(settings, folder)])
    except BaseException:
        remove_beside(folder)
        raise
    return folder


def _start_one(words: list[str]) -> None:
    name = f"anchorloop-sandbox-{uuid.uuid4().hex}"
    run = ["docker", "run", "--detach", "--restart", "on-failure", "--name", name, *words]
    try:
        done = subprocess.run(
            [*run, "--folder", "/run/sandbox"], capture_output=True, text=True, timeout=_CALL_S
        )
    except subprocess.TimeoutExpired as error:
        raise InfraError(
            f"sandbox container {name} did not start in {_CALL_S:.0f} s; see that the Docker "
            "engine answers `docker ps`"
        ) from error
    except OSError as error:
        raise InfraError(f"sandbox container {name} did not start: {error}") from error
    if done.returncode:
        raise InfraError(f"sandbox container {name} did not start: {done.stderr[-300:]}")


def remove_beside(folder: Path) -> None:
    """Remove the supervisors that share a folder, and the folder; none there is fine.

    The folder goes last: the engine makes it anew for a supervisor that it starts again.
    """
    ask = ["docker", "ps", "--all", "--quiet", "--filter", f"label={BESIDE}={folder}"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        found = subprocess.run(ask, capture_output=True, text=True, timeout=_CALL_S).stdout.split()
        if found:
            remove = ["docker", "rm", "--force", *found]
            subprocess.run(remove, capture_output=True, timeout=_CALL_S)
    shutil.rmtree(folder, ignore_errors=True)


def _sandboxes(spec: StageSpec) -> int:
    """The most sandboxes the stage has open at once, each with all its supervisors."""
    if spec.config["trainer"]["backend"] != "verl":
        return 1
    trainer = spec.runtime["trainer"]
    copies = int(trainer["gpus_per_node"]) // int(trainer["gpus_per_copy"])
    inputs = spec.inputs
    both = "frozen" in inputs and inputs["frozen"] != inputs.get("executor", inputs["frozen"])
    return _SAMPLING_WORKERS + copies * (2 if both else 1)  # on shared GPUs each has them all
