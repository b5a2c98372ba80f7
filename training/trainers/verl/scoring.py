"""Frozen Executors on GPUs of their own: vLLM servers that Ray places, starts again and ends.

A server holds one copy of the weights with its own tool loop and sandbox, so that what travels is
tasks and finished trajectories.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from training.errors import InfraError
from training.models import load_tokenizer
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task, ToolLoop
from training.rollout.trajectory import Trajectory
from training.rollout.vllm_engine import VllmEngine, VllmSettings
from training.sandbox.client import Sandbox
from training.sandbox.settings import SandboxSettings

_STARTS = 3
"""How often a server that died is started again."""


class ScoringServer:
    """One copy; an actor. Opened by the first call, so that a restarted one opens itself."""

    def __init__(
        self,
        folder: str,
        settings: VllmSettings,
        sandbox: SandboxSettings | None,
        max_code_chars: int,
        max_observation_tokens: int,
    ) -> None:
        self._folder, self._settings, self._sandbox = Path(folder), settings, sandbox
        self._limits = (max_code_chars, max_observation_tokens)
        self._opening: asyncio.Task[ToolLoop] | None = None
        self._engine: VllmEngine | None = None

    async def ready(self) -> None:
        """Wait until the server can sample."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await self._opening

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[dict[str, Any]]]:
        """As `ToolLoop.rollout`, with trajectories as plain records."""
        await self.ready()
        assert self._opening is not None
        groups = await self._opening.result().rollout(tasks, group_size, sampling, seeds)
        return [[trajectory.to_json() for trajectory in group] for group in groups]

    async def metrics(self) -> dict[str, float]:
        """The engine's totals."""
        return self._engine.metrics() if self._engine else {}

    async def _open(self) -> ToolLoop:
        words = load_tokenizer(self._folder, remote_code=self._settings.remote_code)
        sandbox = None
        if self._sandbox is not None:
            sandbox = await Sandbox(self._sandbox).__aenter__()  # ends with this process
        self._engine = await VllmEngine(self._folder, self._settings).__aenter__()
        code_chars, observation_tokens = self._limits
        return ToolLoop(
            words,
            self._engine,
            sandbox,
            max_code_chars=code_chars,
            max_observation_tokens=observation_tokens,
        )


class ScoringServers:
    """A `Sampler` over several copies of one frozen model."""

    def __init__(self, actors: Sequence[Any], deadline_seconds: float) -> None:
        self._actors, self._deadline = list(actors), deadline_seconds

    @classmethod
    async def start(
        cls,
        copies: int,
        gpus_per_copy: int,
        deadline_seconds: float,
        **server: Any,
    ) -> "ScoringServers":
        """Start the copies and wait until all are ready; `server` goes to `ScoringServer`."""
        actor = ray.remote(ScoringServer).options(
            num_gpus=gpus_per_copy, num_cpus=1, max_restarts=_STARTS, max_task_retries=_STARTS
        )
        servers = cls([actor.remote(**server) for _ in range(copies)], deadline_seconds)
        await servers._all("start", [actor.ready.remote() for actor in servers._actors])
        return servers

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]:
        """See `training.trainers.backends.Sampler.rollout`; tasks are dealt in turns."""
        used = self._actors[: len(tasks)]
        count = len(used)
        parts = await self._all(
            "sample",
            [
                actor.rollout.remote(
                    list(tasks[i::count]), group_size, sampling, list(seeds[i::count])
                )
                for i, actor in enumerate(used)
            ],
        )
        return [
            [Trajectory.from_json(record) for record in parts[i % count][i // count]]
            for i in range(len(tasks))
        ]

    async def metrics(self) -> list[dict[str, float]]:
        """The totals of each copy's engine."""
        found: list[dict[str, float]] = await self._all(
            "report", [actor.metrics.remote() for actor in self._actors]
        )
        return found

    async def _all(self, what: str, calls: Sequence[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(self._deadline):
                return list(await asyncio.gather(*calls))
        except TimeoutError:
            raise InfraError(
                f"the scoring servers did not {what} within {self._deadline:g} s "
                "(trainer.deadline_seconds); look at the log, then retry"
            ) from None
        except RayError as error:
            cause = " ".join(str(error).split())[-400:]
            raise InfraError(f"a scoring server failed to {what}: {cause}") from error
