"""Frozen Executors: vLLM servers that Ray places, starts again and ends.

A server holds one copy of the weights with its own tool loop and sandbox, so that what travels is
tasks and finished trajectories. It has GPUs of its own, or shares those of training in turns. Its
process loads this module, which leaves verl out: that takes ten seconds.
"""

import asyncio
import contextlib
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
from training.trainers.verl.turns import Turns

_STARTS = 3
"""How often a server that died is started again."""
_CLOSE_S = 8.0
"""Seconds that a server has to end by itself."""


Options = dict[str, Any]
"""Where Ray puts an actor."""


class ScoringServer:
    """One copy; an actor. Opened by the first call, so that a restarted one opens itself.

    A restarted one is awake, whatever its predecessor was: what asks is whoever has the turn.
    """

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

    async def wake(self) -> None:
        """Open the server, or wake it up; returns when it can sample."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await self._opening
        assert self._engine is not None
        await self._engine.wake()

    async def sleep(self) -> None:
        """Give the GPU memory back; weights wait in the machine's."""
        if self._engine is not None:
            await self._engine.sleep()

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[dict[str, Any]]]:
        """As `ToolLoop.rollout`, with trajectories as plain records."""
        await self.wake()
        assert self._opening is not None
        groups = await self._opening.result().rollout(tasks, group_size, sampling, seeds)
        return [[trajectory.to_json() for trajectory in group] for group in groups]

    async def close(self) -> None:
        """End vLLM's processes, which would outlive this one."""
        if self._engine is not None:
            await self._engine.__aexit__(None, None, None)

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
    """A `Sampler` over several copies of one frozen model; samples while it has its turn."""

    def __init__(self, actors: Sequence[Any], turns: Turns, deadline_seconds: float) -> None:
        self._actors, self._turns, self._deadline = list(actors), turns, deadline_seconds

    @classmethod
    def place(
        cls,
        places: Sequence[Options],
        turns: Turns,
        deadline_seconds: float,
        **server: Any,
    ) -> "ScoringServers":
        """Have Ray place a copy at each place; `server` goes to `ScoringServer`."""
        actor = ray.remote(ScoringServer)
        made = [
            actor.options(
                **place, num_cpus=1, max_restarts=_STARTS, max_task_retries=_STARTS
            ).remote(**server)
            for place in places
        ]
        return cls(made, turns, deadline_seconds)

    async def ready(self) -> None:
        """Wait until all can sample."""
        async with self._turns.of(self):
            pass

    async def wake(self) -> None:
        """See `training.trainers.verl.turns.Sleeper`; the first time it opens the servers."""
        await self._all("start", [actor.wake.remote() for actor in self._actors])

    async def sleep(self) -> None:
        """See `training.trainers.verl.turns.Sleeper`."""
        await self._all("sleep", [actor.sleep.remote() for actor in self._actors])

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
        async with self._turns.of(self):
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

    async def close(self) -> None:
        """End the servers, by force where they do not in time."""
        ending = [actor.close.remote() for actor in self._actors]
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*ending)
        for actor in self._actors:
            ray.kill(actor)

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
