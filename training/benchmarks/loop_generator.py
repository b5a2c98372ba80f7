"""Responses from whatever samples trajectories, in batches or one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from training.benchmarks.responses import Response
from training.benchmarks.runner import Job
from training.rollout.engine import Sampling
from training.rollout.tool_loop import Task
from training.rollout.trajectory import Status, Stop, Trajectory

CUT = (Stop.LENGTH, Stop.TURNS, Stop.CONTEXT)


class Sampler(Protocol):
    """Samples groups of trajectories, as `ToolLoop.rollout` does."""

    async def rollout(
        self,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
    ) -> list[list[Trajectory]]: ...


class LoopGenerator:
    """A `Generator` over `sampler`.

    `encode` gives a job's prompt ids. Greedy jobs use `sampling` at temperature 0, sampled ones
    with its temperature and top-p. An engine whose rows share one batch gets the jobs that wait in
    batches of at most `batch`; with None each job is a request of its own, and the engine's server
    mixes them. A prompt of `room` tokens or more leaves none for an answer, and is answered by an
    empty, cut response.
    """

    def __init__(
        self,
        sampler: Sampler,
        encode: Callable[[Job], Sequence[int]],
        sampling: Sampling,
        room: int,
        batch: int | None,
    ) -> None:
        self._sampler, self._encode, self._batch = sampler, encode, batch
        self._sampled = sampling
        self._greedy = replace(sampling, temperature=0.0, top_p=1.0)
        self._room = room
        self._waiting: deque[tuple[Job, Task, asyncio.Future[Trajectory]]] = deque()
        self._drain: asyncio.Task[None] | None = None

    async def generate(self, job: Job) -> Response:
        """The response to one job."""
        task = Task("/".join(map(str, job.key)), self._encode(job))
        if len(task.prompt_ids) >= self._room:
            return Response("", truncated=True, seed=job.seed)
        if self._batch is None:
            trajectory = (await self._rollout([(job, task)]))[0]
        else:
            trajectory = await self._in_batch(job, task)
        return Response(
            text=trajectory.text,
            truncated=trajectory.stop in CUT,
            infra=trajectory.status is Status.INFRA,
            tool_calls=trajectory.n_tool,
            tokens=sum(trajectory.mask),
            seed=trajectory.seed,
        )

    async def _in_batch(self, job: Job, task: Task) -> Trajectory:
        future: asyncio.Future[Trajectory] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, task, future))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._run_batches())
        return await future

    async def _run_batches(self) -> None:
        await asyncio.sleep(0)  # let every job that is ready join the first batch
        while self._waiting:
            sampled = self._waiting[0][0].sampled
            batch: list[tuple[Job, Task, asyncio.Future[Trajectory]]] = []
            while self._waiting and len(batch) < (self._batch or 1):
                if self._waiting[0][0].sampled != sampled:
                    break
                batch.append(self._waiting.popleft())
            try:
                trajectories = await self._rollout([(job, task) for job, task, _ in batch])
            except Exception as error:  # each job's caller raises it
                for _, _, future in [*batch, *self._waiting]:
                    if not future.done():
                        future.set_exception(error)
                self._waiting.clear()
                return
            for (_, _, future), trajectory in zip(batch, trajectories, strict=True):
                if not future.done():
                    future.set_result(trajectory)

    async def _rollout(self, batch: Sequence[tuple[Job, Task]]) -> list[Trajectory]:
        jobs = [job for job, _ in batch]
        sampling = self._sampled if jobs[0].sampled else self._greedy
        groups = await self._sampler.rollout(
            [task for _, task in batch], 1, sampling, [job.seed for job in jobs]
        )
        return [group[0] for group in groups]
