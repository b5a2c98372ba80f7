"""The real stages, with one NaN put in where it could come from. Run like ``training.stages``.

``POISON`` is ``<source>:<stage>:<iteration>:<update>``. Just before that update of that stage

- ``reference`` breaks a weight of the base model, so that the KL term and the loss are NaN,
- ``policy`` breaks a weight of the policy, so that its log-probabilities are NaN,
- ``reward`` makes a term of the Curriculum's reward NaN.
"""

import itertools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from training.algorithms import curriculum_reward
from training.spec import StageSpec
from training.stages import __main__ as program
from training.trainers import curriculum
from training.trainers.torch.update import PolicyUpdate


def poison(source: str, update: int) -> None:
    """Put the NaN in at the update, counted from 0."""
    if source == "reward":
        curriculum.score_batch = _at(update, curriculum.score_batch, _break_reward)  # type: ignore[attr-defined]
    else:
        PolicyUpdate.step = _at(update, PolicyUpdate.step, _BREAK[source])  # type: ignore[method-assign]


def _at(update: int, whole: Callable[..., Any], harm: Callable[..., None]) -> Callable[..., Any]:
    calls = itertools.count()

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) == update:
            harm(*arguments)
        return whole(*arguments, **named)

    return called


def _break_reward(*_: Any) -> None:
    curriculum_reward.r_unc = lambda _vote: math.nan  # type: ignore[assignment]


def _break(model: torch.nn.Module) -> None:
    next(model.parameters()).data[1, 0] = math.nan


_BREAK: dict[str, Callable[..., None]] = {
    "reference": lambda update, *_: _break(update.reference),
    "policy": lambda update, *_: _break(update.policy),
}


def _wanted(spec: StageSpec) -> tuple[str, int] | None:
    source, stage, iteration, update = os.environ["POISON"].split(":")
    mine = (spec.stage, str(spec.iteration)) == (stage, iteration)
    return (source, int(update)) if mine else None


if __name__ == "__main__":
    if os.environ.get("POISON"):
        told = StageSpec.load(Path(sys.argv[sys.argv.index("--spec") + 1]))
        wanted = _wanted(told)
        if wanted is not None:
            poison(*wanted)
    sys.exit(program.main())
