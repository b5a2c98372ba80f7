"""What a backend gives the stages: agents that are trained, and frozen ones that only play.

The stages' own code is the same for every backend: prompts, seeds, votes, rewards and records.
"""

import importlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from training.config import Trainer, backend_module
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Trajectory
from training.stages.base import StageContext
from training.trainers.samples import Sample

Role = Literal["curriculum", "executor"]


class Sampler(Protocol):
    """Samples groups of trajectories, as `ToolLoop.rollout` describes."""

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]:
        """A group for each task, in the order of the tasks."""
        ...


class Policy(Sampler, Protocol):
    """An agent under training; what it samples always comes from its newest weights."""

    async def restore(self) -> int:
        """Go back to the newest whole checkpoint; returns its finished steps, 0 for none."""
        ...

    async def step(self, groups: Sequence[Sequence[Sample]], seed: int) -> dict[str, float]:
        """Learn from one rollout; see `training.trainers.torch.update.PolicyUpdate.step`."""
        ...

    async def save(self, step: int) -> None:
        """Write the checkpoint of `step` finished steps."""
        ...

    async def publish(self, folder: Path) -> None:
        """Write weights and tokenizer in Hugging Face format."""
        ...


class Backend(Protocol):
    """Machinery of one stage; open it with `open_backend`."""

    async def policy(self, role: Role) -> Policy:
        """The agent of this stage, which learns: weights from the stage's input `role`.

        The Curriculum has no tool.
        """
        ...

    async def frozen(self, artifact: Path) -> Sampler:
        """An Executor that stays as it is: weights from an artifact's `model`."""
        ...

    async def metrics(self) -> dict[str, float]:
        """Speed of sampling, and what the sandbox counted."""
        ...


def open_backend(ctx: StageContext) -> AbstractAsyncContextManager[Backend]:
    """The backend that the configuration names, for one stage."""
    name = ctx.section(Trainer).backend
    module = importlib.import_module(backend_module(name))
    opened: AbstractAsyncContextManager[Backend] = module.open_backend(ctx)
    return opened
