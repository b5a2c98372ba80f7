"""What an experiment is called and what its choices mean; light, for the command line and flows."""

from typing import Any

from training.config import ExperimentConfig
from training.config_load import load_config


def resolve(
    profile: str,
    method: str,
    seed: int,
    iterations: int | None,
    overrides: dict[str, Any],
) -> ExperimentConfig:
    """The configuration that these choices mean. Raises ConfigError."""
    chosen = {**overrides, "seed": seed}
    if iterations is not None:
        chosen["iterations"] = iterations
    return load_config(profile, method, chosen)


def assigned(values: list[str] | None, trainer: str | None) -> list[str]:
    """The assignments of --set, and the one that --trainer stands for, which wins."""
    return [*(values or []), *([f"trainer.backend={trainer}"] if trainer else [])]


def default_name(profile: str, method: str, seed: int) -> str:
    """Name of a run that was given none."""
    return f"{profile}-{method}-s{seed}"
