"""Checkpoints inside a long stage: atomic, verified, two kept (docs/method.md section 5).

A checkpoint is a folder `step_<n>` that holds everything the next step depends on after n finished
steps; n is the place in the data too, since batches, prompts and seeds all follow from it. The
manifest is written last and the folder gets its name by one rename, so a folder with that name is
whole unless the disk damaged it, which the digests show.
"""

import hashlib
import json
import logging
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from training.disk import need_room

log = logging.getLogger(__name__)

KEEP = 2
_STATE = "state.pt"
_MANIFEST = "manifest.json"


class Checkpoints:
    """The checkpoints of one stage, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Write the checkpoint of `step` finished steps, then drop all but the newest two.

        Returns only when the bytes and the name are on the disk. Raises `DiskFullError`, before
        anything is written, where there is no room.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        target, partial = self._place(step), self.folder / f"step_{step}.partial"
        for leftover in (target, *self.folder.glob("*.partial")):
            shutil.rmtree(leftover, ignore_errors=True)
        state = {
            "model": model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "rng": _rng_state(),
        }
        need_room(self.folder, bytes_of(state), "a checkpoint")
        partial.mkdir()
        with (partial / _STATE).open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        manifest = {"step": step, **_digest(partial / _STATE)}
        with (partial / _MANIFEST).open("w") as file:
            json.dump(manifest, file)
            file.flush()
            os.fsync(file.fileno())
        _flush_folder(partial)
        partial.rename(target)
        _flush_folder(self.folder)
        for old in self.steps()[KEEP:]:
            shutil.rmtree(self._place(old))

    def steps(self) -> list[int]:
        """Steps of the checkpoints that exist, newest first, verified or not."""
        names = [path.name.removeprefix("step_") for path in self.folder.glob("step_*")]
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Load the newest checkpoint that verifies; returns its finished steps, 0 for none.

        A damaged one is passed over with a warning, never loaded in part. A checkpoint that
        verifies and still does not fit the model is a mistake of ours and raises.
        """
        for step in self.steps():
            place = self._place(step)
            try:
                _verify(place)
            except (OSError, ValueError, KeyError) as error:
                log.warning("checkpoint %s is damaged and not used: %s", place.name, error)
                continue
            state = torch.load(place / _STATE, map_location="cpu", weights_only=True)
            model.load_state_dict(state["model"])
            optimiser.load_state_dict(state["optimiser"])
            _set_rng_state(state["rng"])
            return step
        return 0

    def _place(self, step: int) -> Path:
        return self.folder / f"step_{step}"


def bytes_of(state: Any) -> int:
    """Bytes of all tensors in nested mappings and sequences."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(bytes_of(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(bytes_of(value) for value in state)
    return 0


def _verify(place: Path) -> None:
    """Check that a checkpoint's file is exactly what was written."""
    manifest = json.loads((place / _MANIFEST).read_text())
    for key, value in _digest(place / _STATE).items():
        if manifest[key] != value:
            raise ValueError(f"{_STATE} has {key} {value}, its manifest says {manifest[key]}")


def _digest(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _rng_state() -> dict[str, Any]:
    """The generators' states as tensors and plain values, which load without pickled code."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [name, torch.tensor(np.asarray(keys, np.int64)), position, has_gauss, cached],
    }


def _set_rng_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
