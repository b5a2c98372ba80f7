"""The defaults of the maths, which `explain` shows, are the defaults that an experiment trains."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from training.algorithms.adpo import clip_bounds, weight
from training.algorithms.cross_reference import cross_reference_advantage
from training.algorithms.curriculum_reward import score_batch
from training.config import ExperimentConfig

CONFIG = ExperimentConfig()


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (weight, CONFIG.adpo.model_dump()),
        (clip_bounds, CONFIG.adpo.model_dump()),
        (
            cross_reference_advantage,
            {
                "alpha": CONFIG.executor.alpha,
                "std": CONFIG.advantage.std,
                "eps": CONFIG.advantage.epsilon,
                "scale": 1.0,
            },
        ),
        (
            score_batch,
            {
                **CONFIG.curriculum.model_dump(),
                "std": CONFIG.advantage.std,
                "eps": CONFIG.advantage.epsilon,
            },
        ),
    ],
)
def test_defaults_agree(function: Callable[..., Any], values: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    assert defaults
    assert defaults == {name: values[name] for name in defaults}
