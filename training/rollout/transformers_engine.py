"""The embedded engine: samples from a transformers model in this process.

Rows run in lockstep in one batch.  A row that waits for its tool holds its place for a fixed
number of steps, so that what the batch looks like at a step never depends on how fast tools are;
only a row whose tool is slower than the grace leaves the batch, and comes back after the others.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from training.rollout.decoder import Decoder
from training.rollout.engine import Prompt, Sampled, Sampling, TurnHandler
from training.rollout.stop_string import StopString
from training.rollout.wave import Wave

T = TypeVar("T")

_STRIDE = 4  # most steps in a row between looks at the tools and at the batch
_KEPT_SHARE = 0.75  # a batch with fewer active rows than this is made anew


class TransformersEngine:
    """An `Engine` (see `training.rollout.engine`) over `Decoder`.

    `wave_rows` bounds the rows of the batch.  A row that completed the stop string is due again
    `tool_steps` steps later; the batch then waits for it, and gives up and parks it once neither
    this row's tool nor any other has come back for `grace_seconds`.

    Raises `UnsupportedModelError` for a model outside the decoder's family.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        wave_rows: int = 512,
        tool_steps: int = 16,
        grace_seconds: float = 3.0,
    ) -> None:
        if wave_rows < 1 or tool_steps < 1 or grace_seconds < 0:
            raise ValueError(
                f"wave_rows {wave_rows} and tool_steps {tool_steps} must be at least 1 and "
                f"grace_seconds {grace_seconds} at least 0"
            )
        self._decoder = Decoder(model)
        self._tokenizer = tokenizer
        self._eos_ids = _end_tokens(model, tokenizer)
        self._wave_rows, self._tool_steps, self._grace = wave_rows, tool_steps, grace_seconds
        self._stops: dict[str, StopString] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._totals = dict.fromkeys(
            (
                "generated_tokens",
                "observation_tokens",
                "prefill_tokens",
                "steps",
                "batches",
                "parked_rows",
                "seconds",
                "tool_wait_seconds",
            ),
            0.0,
        )

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's end-of-text token and those of the generation configuration."""
        return self._eos_ids

    @property
    def context(self) -> int:
        """The model's number of positions."""
        return self._decoder.context

    def update(self, model: PreTrainedModel) -> None:
        """Sample from this model's weights as they are now (after an optimiser step)."""
        self._decoder.load(model)

    def metrics(self) -> dict[str, float]:
        """Totals since the engine was made.

        Token counts, steps, batches made, rows parked, seconds in `sample`, generated
        `tokens_per_second` of those, and the share of them spent waiting for tools alone.
        """
        seconds = max(self._totals["seconds"], 1e-9)
        return {
            **self._totals,
            "tokens_per_second": self._totals["generated_tokens"] / seconds,
            "tool_wait_share": self._totals["tool_wait_seconds"] / seconds,
        }

    async def sample(
        self, prompts: Sequence[Prompt], sampling: Sampling, turn: TurnHandler
    ) -> list[Sampled]:
        """Sample every prompt to its end; see `training.rollout.engine.Engine`.

        What `turn` raises is raised here, after the other calls in flight have been cancelled.
        """
        if not prompts:
            return []
        started = time.monotonic()
        wave = Wave(self._decoder, prompts, sampling, self._eos_ids, self._stop(sampling.stop))
        run = _Run(
            wave, len(prompts), turn, self._wave_rows, self._tool_steps, self._grace, self._thread
        )
        try:
            await run.finish()
        finally:
            await run.close()
            counts = {
                "generated_tokens": wave.generated_tokens,
                "observation_tokens": wave.observation_tokens,
                "prefill_tokens": wave.prefill_tokens,
                "steps": run.clock,
                "batches": run.batches,
                "parked_rows": run.parked_rows,
                "seconds": time.monotonic() - started,
                "tool_wait_seconds": run.waited,
            }
            for key, value in counts.items():
                self._totals[key] += value
        return [wave.row(row) for row in range(len(prompts))]

    def _stop(self, text: str | None) -> StopString | None:
        if text is None:
            return None
        if text not in self._stops:
            self._stops[text] = StopString(self._tokenizer, text, self._decoder.vocabulary)
        return self._stops[text]


class _Run:
    """One `sample` call: who is in the batch, whose tool is running, when each row is due."""

    def __init__(
        self,
        wave: Wave,
        rows: int,
        turn: TurnHandler,
        wave_rows: int,
        tool_steps: int,
        grace: float,
        thread: ThreadPoolExecutor,
    ) -> None:
        self._wave, self._turn, self._thread = wave, turn, thread
        self._wave_rows, self._tool_steps, self._grace = wave_rows, tool_steps, grace
        self._queue = deque(range(rows))
        self._tools: dict[int, asyncio.Task[Sequence[int] | None]] = {}
        self._due: dict[int, int] = {}  # row → step, in the order of pausing
        self._asked: dict[int, float] = {}
        self._parked: list[int] = []
        self._heard = time.monotonic()
        self.clock = self.batches = self.parked_rows = 0
        self.waited = 0.0

    async def finish(self) -> None:
        while True:
            await self._settle_due_rows()
            await self._rebatch_if_due()
            if not self._wave.active():
                if not self._parked:
                    return
                await self._unpark()
            elif self._wave.any_live():
                until_due = min(self._due.values(), default=self.clock + _STRIDE) - self.clock
                steps, paused = await self._in_thread(self._wave.advance, min(until_due, _STRIDE))
                self.clock += steps
                await self._start_tools(paused)
            else:
                self.clock = min(self._due.values())

    async def close(self) -> None:
        """Cancel the tools that still run, and wait for their end."""
        for task in self._tools.values():
            task.cancel()
        await asyncio.gather(*self._tools.values(), return_exceptions=True)

    async def _start_tools(self, rows: list[int]) -> None:
        for row in rows:
            self._tools[row] = asyncio.ensure_future(self._turn(row, self._wave.row(row)))
        if rows:
            await asyncio.sleep(0)
        # Rows whose handler answered without waiting for anything are settled at once.  Which
        # ones these are follows from what they wrote, not from time.
        for row in rows:
            if self._tools[row].done():
                self._settle(row)
            else:
                self._tools[row].add_done_callback(self._hear)
                self._due[row] = self.clock + self._tool_steps
                self._asked[row] = time.monotonic()

    async def _settle_due_rows(self) -> None:
        due = [row for row, step in self._due.items() if step <= self.clock]
        leaving = []
        for row in due:
            if await self._came_back(row):
                self._settle(row)
            else:
                del self._due[row]
                leaving.append(row)
        if leaving:
            self._parked += leaving
            self.parked_rows += len(leaving)
            await self._rebatch([], leaving)

    async def _came_back(self, row: int) -> bool:
        """Wait for the row's tool while tools keep coming back; False when patience ends."""
        task = self._tools[row]
        started = time.monotonic()
        while not task.done():
            patience = max(self._asked[row], self._heard) + self._grace - time.monotonic()
            if patience <= 0:
                break
            await asyncio.wait({task}, timeout=patience)
        self.waited += time.monotonic() - started
        return task.done()

    def _settle(self, row: int) -> None:
        self._due.pop(row, None)
        self._wave.resume(row, self._tools.pop(row).result())

    async def _unpark(self) -> None:
        """Wait for every parked row's tool and queue the rows that go on, in row order."""
        started = time.monotonic()
        await asyncio.wait({self._tools[row] for row in self._parked})
        self.waited += time.monotonic() - started
        for row in sorted(self._parked):
            self._settle(row)
            if not self._wave.is_done(row):
                self._queue.append(row)
        self._parked = []

    async def _rebatch_if_due(self) -> None:
        active = self._wave.active()
        room = self._wave_rows - active
        if self._queue and (not active or active <= _KEPT_SHARE * self._wave_rows):
            await self._rebatch([self._queue.popleft() for _ in range(min(room, len(self._queue)))])
        elif active < _KEPT_SHARE * self._wave.slots:
            await self._rebatch([])

    async def _rebatch(self, admitted: list[int], leaving: Sequence[int] = ()) -> None:
        await self._in_thread(self._wave.rebatch, admitted, leaving)
        self.batches += 1

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Compute beside the event loop, so that tools are served while the model works."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _hear(self, _task: object) -> None:
        self._heard = time.monotonic()


def _end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    named = getattr(model.generation_config, "eos_token_id", None)
    ends = [named] if isinstance(named, int) else list(named or [])
    ends += [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    if not ends:
        raise ValueError("neither tokenizer nor generation config names an end-of-text token")
    return frozenset(ends)
