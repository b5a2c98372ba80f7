"""Locks on GPUs by their UUID, so that two stages on one machine never share one by accident.

The stage's process holds them, and they die with it; a driver only looks. The files lie in one
folder of the machine, since another user's stage takes the same GPUs.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from training.errors import ConfigError, InfraError
from training.locking import is_held, try_exclusive
from training.spec import StageSpec

FOLDER = Path(tempfile.gettempdir()) / "anchorloop-gpus"
PATIENCE_S = 5.0
CUDA = ("cuda", "nvidia")
"""Platforms of verl whose GPUs nvidia-smi knows."""
SMI_WORKS = (0, 14)
"""Statuses of nvidia-smi that pass; 14 is documented as a damaged infoROM, and was not met here.

A list that is too short is refused all the same, by the number of GPUs that a stage needs.
"""


def platform() -> str:
    """The platform of verl that stages run on (``VERL_PLATFORM``)."""
    return os.environ.get("VERL_PLATFORM") or "cuda"


def gpus_of(spec: StageSpec) -> list[str]:
    """Ids of the GPUs that a stage takes on this machine: none on CPU or in a Ray cluster.

    Raises ConfigError when the machine shows fewer than the stage needs, InfraError when its
    driver does not tell.
    """
    on_gpus = spec.config.get("trainer", {}).get("backend") == "verl"
    if not on_gpus or os.environ.get("RAY_ADDRESS") or platform() not in CUDA:
        return []
    needed = spec.runtime["trainer"]["gpus_per_node"]
    ids = visible_gpus(needed)
    if len(ids) < needed and _has_driver():
        raise ConfigError(
            f"visible GPUs: {len(ids)}, trainer.gpus_per_node: {needed}; name more in "
            "CUDA_VISIBLE_DEVICES, use a machine with more, or lower trainer.gpus_per_node"
        )
    return ids


def visible_gpus(most: int) -> list[str]:
    """UUIDs of the first GPUs that CUDA_VISIBLE_DEVICES shows; an id nobody knows stays itself."""
    known = _uuids()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return known[:most]
    parts = [part.strip() for part in named.split(",") if part.strip() not in ("", "-1")]
    numbers = {str(number): uuid for number, uuid in enumerate(known)}
    return [numbers.get(part, part) for part in parts][:most]


@contextlib.contextmanager
def holding_gpus(ids: Sequence[str]) -> Iterator[None]:
    """Hold these GPUs and make them the visible ones, so that what is used is what is locked.

    Raises InfraError naming the holder when one stays taken.
    """
    if not ids:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    with contextlib.ExitStack() as stack:
        for gpu in sorted(ids):  # one order for everybody, so that no two wait for each other
            _take(gpu, stack)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(ids)
        try:
            yield
        finally:
            if before is None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = before


def gpu_in_use(ids: Sequence[str]) -> str | None:
    """One of these GPUs that is taken and by whom, in words; None when all are free."""
    for gpu in ids:
        with contextlib.suppress(FileNotFoundError), _file(gpu).open("r+") as handle:
            if is_held(handle.fileno()):
                return f"{gpu} is in use by {_holder(gpu)}"
    return None


def lock_folder() -> Path:
    """The folder of the locks, in which every user of the machine may make files."""
    if not FOLDER.is_dir():
        FOLDER.mkdir(exist_ok=True)
        FOLDER.chmod(0o1777)
    return FOLDER


def _take(gpu: str, stack: contextlib.ExitStack) -> None:
    descriptor = _open(gpu)
    stack.callback(os.close, descriptor)
    deadline = time.monotonic() + PATIENCE_S
    while not try_exclusive(descriptor):
        if time.monotonic() > deadline:
            raise InfraError(
                f"{gpu} is in use by {_holder(gpu)}; wait for it, or name others in "
                "CUDA_VISIBLE_DEVICES"
            )
        time.sleep(0.1)
    os.truncate(descriptor, 0)
    holder = {"pid": os.getpid(), "host": socket.gethostname()}
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _open(gpu: str) -> int:
    """Open the lock file of a GPU, which its first user makes for all users of the machine."""
    lock_folder()
    with contextlib.suppress(FileExistsError):
        # not O_CREAT alone: the kernel refuses it on another user's file in such a folder
        made = os.open(_file(gpu), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(made, 0o666)
        os.close(made)
    return os.open(_file(gpu), os.O_RDWR | os.O_CLOEXEC)


def _file(gpu: str) -> Path:
    return FOLDER / f"{gpu.replace('/', '_')}.lock"


def _holder(gpu: str) -> str:
    try:
        found = json.loads(_file(gpu).read_text(encoding="utf-8"))
        return f"process {found['pid']} on {found['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"


def _uuids() -> list[str]:
    """UUIDs in the order of the PCI bus; none where there is no driver.

    Raises InfraError where there is one and it fails: none would mean that nothing is locked.
    """
    if not _has_driver():
        return []
    asked = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired as error:
        raise InfraError(
            "nvidia-smi does not answer; the GPU driver of this machine hangs"
        ) from error
    if done.returncode not in SMI_WORKS:
        words = " ".join(f"{done.stdout} {done.stderr}".split())[-300:]
        raise InfraError(
            f"nvidia-smi ended with status {done.returncode} ({words}); see that it lists the GPUs "
            "of this machine"
        )
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU-")]


def _has_driver() -> bool:
    return shutil.which("nvidia-smi") is not None
