"""What a stage's container is made of: a pure function of its spec and of the machine.

A stage sees the store, the files of its spec, our code, the GPU locks and, where it fetches
weights, the model cache; of the network nothing, unless it fetches or joins a Ray cluster.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from tasks.home import QUIET
from tasks.launchers import THREADS, Job
from tasks.secrets import PASSED_TO_FETCH
from training.errors import ConfigError
from training.gpu_locks import lock_folder
from training.sandbox.isolation import BESIDE
from training.spec import StageSpec

ROOT = Path(__file__).resolve().parents[1]
HOME = "/opt/anchorloop"
"""Where the image has its own copy of our code and the sandbox's environment."""

_PASSED = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "RAY_ADDRESS")
_CACHE = "/cache/huggingface"
_SANDBOX = "/run/anchorloop-sandbox"
_LOCKS = "/tmp/anchorloop-gpus"
"""Where a stage in a container looks for the machine's GPU locks."""
_KEPT_SHARE = 16
"""One part in so many of the memory stays with the machine, so that a stage that grows without
end is killed by its own limit and not the driver by the kernel."""
_GPU_LIMITS = [
    Ulimit(name="memlock", soft=-1, hard=-1),  # NCCL and CUDA pin pages
    Ulimit(name="stack", soft=64 << 20, hard=64 << 20),
    Ulimit(name="nofile", soft=65536, hard=65536),  # Ray opens some hundreds a worker
]
_NESTING = ["seccomp=unconfined", "apparmor=unconfined"]
"""What bubblewrap needs inside a container to make namespaces; a fresh /proc can be mounted only
where the container's own has no masked parts."""


@dataclass(frozen=True)
class Machine:
    """The machine of the engine, as far as a container depends on it."""

    memory: int
    """Bytes."""
    environment: Mapping[str, str]
    """The driver's environment."""
    user: str
    """``uid:gid`` that owns the store."""


def container_name(job: Job) -> str:
    """One name a stage and store, so that the engine itself refuses a second container."""
    return f"anchorloop-{job.stage}-{hashlib.sha256(str(job.out).encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Options:
    """One attempt's container, as the docker SDK's ``APIClient`` takes it."""

    container: dict[str, Any]
    """Arguments of ``create_container``, but image, command and host configuration."""
    host: dict[str, Any]
    """Arguments of ``create_host_config``."""
    unmasked: dict[str, list[str]]
    """Entries of the host configuration that the SDK has no argument for."""


def options(job: Job, spec: StageSpec, machine: Machine, sandbox: Path | None = None) -> Options:
    """The container of one attempt; ``sandbox`` is the folder of supervisors beside it.

    Raises ConfigError when fewer GPUs are visible than the stage needs, or the model's folder is
    not named in full.
    """
    fetches = _from_hub(spec) and machine.environment.get("HF_HUB_OFFLINE") != "1"
    on_gpus, nests = _on_gpus(spec), _sandboxed(spec) and sandbox is None
    limit = machine.memory // _KEPT_SHARE * (_KEPT_SHARE - 1)
    container: dict[str, Any] = {
        "name": container_name(job),
        "labels": {
            "anchorloop.run": job.run,
            "anchorloop.run-id": job.run_id,
            "anchorloop.stage": job.stage,
            "anchorloop.identity": job.out.name,
            "anchorloop.log": str(job.log),
        },
        "user": machine.user,
        "working_dir": HOME,
        "environment": _environment(spec, machine, fetches),
    }
    host: dict[str, Any] = {
        "mounts": _mounts(job, spec, machine),
        "device_requests": _gpus(spec, machine),
        "shm_size": machine.memory // 2,
        "mem_limit": limit,
        "memswap_limit": limit,
        "ulimits": [Ulimit(name="core", soft=0, hard=0), *(_GPU_LIMITS if on_gpus else [])],
        "security_opt": ["no-new-privileges", *(_NESTING if nests else [])],
        "log_config": LogConfig(type="json-file", config={"max-size": "64m", "max-file": "2"}),
        "network_mode": "bridge" if fetches else "none",
    }
    if on_gpus and machine.environment.get("RAY_ADDRESS"):
        host["network_mode"] = "host"
    else:
        container["hostname"] = job.stage.replace("_", "-")
        host["extra_hosts"] = {container["hostname"]: "127.0.0.1"}
    unmasked: dict[str, list[str]] = {"MaskedPaths": [], "ReadonlyPaths": []}
    if sandbox is not None:
        host["mounts"].append(Mount(_SANDBOX, str(sandbox), "bind"))
        container["environment"][BESIDE] = _SANDBOX
    return Options(container, host, unmasked if nests else {})


def _mounts(job: Job, spec: StageSpec, machine: Machine) -> list[Mount]:
    """The store under its own path, and read-only our code and every file the spec names."""
    code = [Mount(f"{HOME}/{n}", str(ROOT / n), "bind", read_only=True) for n in _CODE]
    named = sorted(set(spec.paths.values()) | set(_model_folder(spec)))
    files = [Mount(path, path, "bind", read_only=True) for path in named]
    store = str(job.out.parent)
    mounts = [Mount(store, store, "bind"), *code, *files]
    if _on_gpus(spec) and not machine.environment.get("RAY_ADDRESS"):
        mounts.append(Mount(_LOCKS, str(lock_folder()), "bind"))
    if _from_hub(spec):
        cache = _model_cache(machine)
        cache.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(_CACHE, str(cache), "bind"))
    return mounts


_CODE = ("training", "sandbox_image")
"""Packages that stages are made of. Mounted over the image's copy: an identity names the code that
the driver has, so no other code may run under it."""


def _environment(spec: StageSpec, machine: Machine, fetches: bool) -> dict[str, str]:
    names = (*_PASSED, *(PASSED_TO_FETCH if fetches else ()))
    given = {name: machine.environment[name] for name in names if name in machine.environment}
    # The user has no entry in the image's list of users, and some libraries ask for one.
    made = {"HOME": "/tmp", "USER": "anchorloop", "PYTHONPATH": HOME}
    made["HF_HUB_OFFLINE"] = "0" if fetches else "1"
    if _from_hub(spec):
        made["HF_HOME"] = _CACHE
    return {**THREADS, **given, **QUIET, **made}


def _gpus(spec: StageSpec, machine: Machine) -> list[DeviceRequest]:
    """Those that CUDA_VISIBLE_DEVICES names, else as many as a node of the trainer has."""
    if not _on_gpus(spec):
        return []
    needed = spec.runtime["trainer"]["gpus_per_node"]
    named = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [DeviceRequest(count=needed, capabilities=[["gpu"]])]
    ids = [part.strip() for part in named.split(",") if part.strip() not in ("", "-1")]
    if len(ids) < needed:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES names {len(ids)} GPUs and trainer.gpus_per_node is {needed}; "
            "name more, or lower trainer.gpus_per_node"
        )
    return [DeviceRequest(device_ids=ids, capabilities=[["gpu"]])]


def _on_gpus(spec: StageSpec) -> bool:
    return bool(spec.config.get("trainer", {}).get("backend") == "verl")


def _sandboxed(spec: StageSpec) -> bool:
    return "sandbox" in spec.config and bool(spec.config["rollout"]["tool"])


def _from_hub(spec: StageSpec) -> bool:
    return spec.stage == "base_model" and spec.config["model"]["source"] == "hub"


def _model_folder(spec: StageSpec) -> list[str]:
    model = spec.config.get("model", {})
    if spec.stage != "base_model" or model["source"] != "folder":
        return []
    if not Path(model["name"]).is_absolute():
        raise ConfigError(
            f"model.name '{model['name']}' is a relative path, and a container has another "
            "current folder; name the whole path"
        )
    return [model["name"]]


def _model_cache(machine: Machine) -> Path:
    given = machine.environment.get("HF_HOME")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "huggingface"


def this_machine(memory: int) -> Machine:
    """The machine of this process, with the memory that the engine reports."""
    return Machine(memory, os.environ, f"{os.getuid()}:{os.getgid()}")
