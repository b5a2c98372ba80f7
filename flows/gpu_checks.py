"""What preflight asks beyond the usual where stages run on GPUs or in containers."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from flows.memory import GIB, gpu_bytes
from tasks.launchers import Launcher
from training.config import ExperimentConfig
from training.gpu_locks import CUDA, SMI_WORKS, platform
from training.spec import interpreter, versions_elsewhere

BUSY_SHARE = 0.1
"""A GPU with more than this share of its memory in use is somebody else's."""
SHM_GIB = 8
"""Shared memory that Ray's object store and NCCL want on a machine with several GPUs."""
_SMI = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.free")


class Unfit(RuntimeError):
    """This machine cannot finish the run; the message says why and what to do."""


def gpu_checks(config: ExperimentConfig, place: Launcher) -> list[tuple[str, Callable[[], str]]]:
    """The checks that this backend and this launcher need, in order of cost."""
    checks: list[tuple[str, Callable[[], str]]] = []
    if place.name == "docker":
        checks.append(("container image", lambda: check_image(place)))
    if config.trainer.backend == "verl":
        checks.append(("gpus", lambda: check_gpus(config)))
        if place.name == "local":
            checks.append(("shared memory", check_shared_memory))
            checks.append(("gpu libraries", lambda: check_libraries(config.trainer.python)))
    return checks


def check_image(place: Launcher) -> str:
    """The engine answers and has the image."""
    return str(place.image())


def check_gpus(config: ExperimentConfig) -> str:
    """As many GPUs as a node needs are visible and large enough, and nobody else uses them."""
    cluster = os.environ.get("RAY_ADDRESS")
    needed, gib = config.trainer.gpus_per_node, gpu_bytes(config) / GIB
    if cluster:
        return f"those of the Ray cluster at {cluster}; not looked at from here"
    if platform() not in CUDA:
        return f"those of verl's platform '{platform()}' (VERL_PLATFORM); not looked at from here"
    gpus = _visible(_gpus())
    if len(gpus) < needed:
        raise Unfit(
            f"visible GPUs: {len(gpus)}, trainer.gpus_per_node: {needed}; use a machine "
            "with more, --set trainer.gpus_per_node=…, or --trainer torch for a small model "
            "without a GPU"
        )
    busy = [f"{i} ({free} of {total} MiB free)" for i, _, total, free in gpus if _busy(total, free)]
    if busy:
        raise Unfit(
            f"somebody uses GPU {', '.join(busy)}; wait, or name free ones in CUDA_VISIBLE_DEVICES"
        )
    smallest = min(gpu[2] for gpu in gpus) / 1024
    if smallest < gib:
        raise Unfit(
            f"the smallest GPU has {smallest:.0f} GiB and about {gib:.0f} GiB are needed; use "
            "larger or more GPUs, or raise trainer.gpus_per_copy"
        )
    return f"{len(gpus)} free, the smallest with {smallest:.0f} GiB, about {gib:.0f} GiB needed"


def check_libraries(python: str) -> str:
    """verl's environment is there, for stages that run on this machine."""
    found = versions_elsewhere(interpreter(python))
    absent = [name for name, version in found.items() if version == "absent"]
    if absent:
        raise Unfit(
            f"trainer.python '{python}' has no {', '.join(absent)}; build verl's environment "
            "(docs/gpu.md), or --launcher docker"
        )
    return ", ".join(f"{name} {found[name]}" for name in ("torch", "verl", "vllm"))


def check_shared_memory(folder: Path = Path("/dev/shm")) -> str:
    """/dev/shm holds what processes on several GPUs pass to each other."""
    free = shutil.disk_usage(folder).free / GIB
    if free < SHM_GIB:
        raise Unfit(
            f"{free:.1f} GiB free in {folder}, {SHM_GIB} GiB needed; as root: "
            f"mount -o remount,size={2 * SHM_GIB}g {folder} (in Docker: --shm-size)"
        )
    return f"{free:.1f} GiB free in {folder}"


Gpu = tuple[str, str, int, int]
"""Index, UUID, memory in MiB, and how much of it is free."""


def _gpus() -> list[Gpu]:
    try:
        done = subprocess.run(
            [*_SMI, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode not in SMI_WORKS:
        words = " ".join(f"{done.stdout} {done.stderr}".split())[-300:]
        raise Unfit(f"nvidia-smi ended with status {done.returncode} ({words}); mend the driver")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    rows = [[word.strip() for word in line.split(",")] for line in lines]
    return [(index, uuid, int(total), int(free)) for index, uuid, total, free in rows]


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return gpus
    wanted = [part.strip() for part in named.split(",")]
    return [gpu for gpu in gpus if any(_names(word, gpu) for word in wanted)]


def _names(word: str, gpu: Gpu) -> bool:
    return word == gpu[0] or (word.startswith("GPU-") and gpu[1].startswith(word))


def _busy(total: int, free: int) -> bool:
    return total - free > BUSY_SHARE * total
