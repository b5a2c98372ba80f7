"""How much memory and disk a model takes: arithmetic on its number of parameters."""

import re
from pathlib import Path

from training.config import ExperimentConfig, Model
from training.trainers.verl.layout import RESIDENT_FROM, split_gpus

GIB = 1 << 30
ADAM_COPIES = 4
"""Weights, gradients and two moments of AdamW, in float32, for the model that is trained."""
CHECKPOINTS = 3
"""Two are kept while a third is written."""
SAMPLING_SHARE = 0.5
"""Of a GPU that also trains, taken by what samples while it is awake."""
_CACHE = 4 * GIB
_OVERHEAD = 8 * GIB
"""Of the machine: Ray's object store and the processes themselves."""


def weight_bytes(model: Model) -> int:
    """Bytes of the weights as float32, as far as they are known here."""
    if model.source == "tiny":
        return 1 << 20
    if model.source == "folder":
        files = Path(model.name).expanduser().glob("*.safetensors")
        return 2 * sum(file.stat().st_size for file in files)
    if model.source == "packaged":
        return 600 << 20
    named = re.search(r"(\d+(?:\.\d+)?)B\b", model.name)
    return int(4e9 * float(named[1] if named else 4))


def disk_bytes(config: ExperimentConfig) -> float:
    """Two models an iteration and the checkpoints of one stage, with half as much again to spare.

    A checkpoint of the GPU backend holds the weights a second time, merged.
    """
    models = 2 * config.iterations + 1
    checkpoints = CHECKPOINTS * (ADAM_COPIES if config.trainer.backend == "verl" else 3)
    return 1.5 * weight_bytes(config.model) * (models + checkpoints) + GIB


def machine_bytes(config: ExperimentConfig) -> float:
    """Main memory of one machine: the models that live in it, and the sandbox's calls."""
    calls = config.sandbox.workers * config.sandbox.memory_mb * (1 << 20)
    weights = weight_bytes(config.model)
    needed = calls if config.rollout.tool else 0
    if config.trainer.backend == "torch":
        return needed + 2 * weights * (ADAM_COPIES + 2) + GIB
    split = split_gpus(config.trainer, trains=True, frozen=frozen_models(config))
    copies = 2  # the base model, and the weights while a checkpoint is merged
    if split.training_per_node * config.trainer.nodes < RESIDENT_FROM:
        copies += ADAM_COPIES
    if split.shared:
        copies += split.copies // config.trainer.nodes
    return needed + copies * weights + _OVERHEAD


def gpu_bytes(config: ExperimentConfig) -> float:
    """Memory that every GPU must have for the stage that needs the most."""
    split = split_gpus(config.trainer, trains=True, frozen=frozen_models(config))
    weights = weight_bytes(config.model)
    ranks = split.training_per_node * config.trainer.nodes
    sampled = weights / (1 if config.model.dtype == "float32" else 2) / config.trainer.gpus_per_copy
    kept = ADAM_COPIES * weights / ranks if ranks >= RESIDENT_FROM else 0.0
    return max(kept, sampled + _CACHE) / SAMPLING_SHARE


def frozen_models(config: ExperimentConfig) -> int:
    """Most frozen models that play in one stage."""
    apart = config.anchor.refresh != "every" and config.iterations > 1
    return 2 if apart and config.curriculum.lambda_ref > 0 else 1
