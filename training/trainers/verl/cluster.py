"""Ray: started on this machine, or the cluster that RAY_ADDRESS names."""

import contextlib
import os
from pathlib import Path
from typing import Any

import psutil
import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from training.config import Trainer

_ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 5.0
_INIT = "ray_kwargs.ray_init."
_MACHINE = ("num_cpus", "num_gpus", "object_store_memory", "_temp_dir")
"""Options that say what a machine has; a cluster that is there already knows."""


def join_ray(trainer: Trainer, config: DictConfig | None) -> None:
    """Start or join; `config` is verl's, None in a stage that trains nobody.

    Workers find our code where this process has it.
    """
    environment: dict[str, Any] = {"env_vars": {}}
    if config is None:
        named = {name.removeprefix("+"): value for name, value in trainer.verl.items()}
        options = {n.removeprefix(_INIT): v for n, v in named.items() if n.startswith(_INIT)}
    else:
        environment = _plain(OmegaConf.create(get_ppo_ray_runtime_env(config)))
        options = _plain(config.ray_kwargs.get("ray_init", {}))
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["env_vars"] |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "TRANSFER_QUEUE_ENABLE": "1",
    }
    options["runtime_env"] = environment
    # Told outright: left to itself, Ray joins whatever cluster it finds on this machine.
    options["address"] = os.environ.get("RAY_ADDRESS") or "local"
    if options["address"] != "local":
        options = {name: value for name, value in options.items() if name not in _MACHINE}
    ray.init(**options)


def leave_ray() -> None:
    """End Ray where it was started here, and whatever of it does not end by itself."""
    ours = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "/ray/" in " ".join(child.cmdline()):
                ours += [child, *child.children(recursive=True)]
    ray.shutdown()
    _, left = psutil.wait_procs(ours, timeout=_PATIENCE_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _plain(config: Any) -> dict[str, Any]:
    return dict(OmegaConf.to_container(config))  # type: ignore[arg-type]
