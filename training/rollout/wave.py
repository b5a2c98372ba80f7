"""The rows of one `sample` call and the batch in which some of them advance in lockstep.

Nothing here knows time or tools.  The composition of the batch follows from its own state alone,
so that equal calls give equal tokens, bit for bit, on one machine.
"""

from collections import deque
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray

from training.rollout.decoder import Decoder
from training.rollout.draw import Streams, draw
from training.rollout.engine import Finish, Prompt, Sampled, Sampling
from training.rollout.kv_cache import Cache
from training.rollout.stop_string import StopString

_COLUMN_STEP = 16
_TAPE = 64  # output tokens a row has room for at first
_PREFILL_TOKENS = 16_384
_FINISH: tuple[Finish, ...] = ("eos", "stop", "length")


class Phase(IntEnum):
    """Where a row is: not in the batch yet, advancing, holding its place, or finished."""

    QUEUED = 0
    LIVE = 1
    WAITING = 2
    DONE = 3


class Wave:
    """Sampling state of `prompts`; `rebatch` chooses the rows of the batch, `step` advances them.

    Raises `ValueError` for an empty prompt, an unknown token, or a prompt that leaves no room.
    """

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        eos_ids: frozenset[int],
        stop: StopString | None,
    ) -> None:
        self._decoder, self._prompts, self._sampling, self._stop = decoder, prompts, sampling, stop
        count = len(prompts)
        self._room = min(sampling.max_context_tokens or decoder.context, decoder.context)
        for row, prompt in enumerate(prompts):
            self._check(row, prompt)
        self._ends = np.zeros(decoder.vocabulary, dtype=bool)
        self._ends[sorted(eos_ids)] = True
        self._streams = Streams([prompt.seed for prompt in prompts])
        self._forced: dict[int, deque[int]] = {}
        self.phase = np.full(count, Phase.QUEUED, dtype=np.int8)
        self._finish = np.zeros(count, dtype=np.int8)
        self._length = np.array([len(prompt.ids) for prompt in prompts], dtype=np.int64)
        self._written = np.zeros(count, dtype=np.int64)
        self._generated = np.zeros(count, dtype=np.int64)
        self._in_turn = np.zeros(count, dtype=np.int64)
        self._last = np.array([prompt.ids[-1] for prompt in prompts], dtype=np.int64)
        self._ids = np.zeros((count, _TAPE), dtype=np.int64)
        self._mask = np.zeros((count, _TAPE), dtype=bool)
        self._logprobs = np.zeros((count, _TAPE))
        self.slots: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._cache: Cache | None = None
        self._logits = torch.empty(0)
        self.prefill_tokens = 0

    @property
    def generated_tokens(self) -> int:
        return int(self._generated.sum())

    @property
    def observation_tokens(self) -> int:
        return int(self._written.sum() - self._generated.sum())

    def active(self) -> NDArray[np.int64]:
        """Rows of the batch that are not done, in batch order."""
        return self.slots[self.phase[self.slots] != Phase.DONE]

    def is_done(self, row: int) -> bool:
        return bool(self.phase[row] == Phase.DONE)

    def any_live(self) -> bool:
        return bool((self.phase[self.slots] == Phase.LIVE).any())

    def row(self, row: int) -> Sampled:
        """A copy of the row's tokens so far."""
        end = self._written[row]
        return Sampled(
            ids=self._ids[row, :end].tolist(),
            mask=self._mask[row, :end].astype(int).tolist(),
            logprobs=self._logprobs[row, :end].tolist(),
            finish=_FINISH[self._finish[row]],
        )

    def resume(self, row: int, observation: Sequence[int] | None) -> None:
        """Settle a waiting row as a `TurnHandler` answers.

        Raises `ValueError` when the observation leaves the row no room to go on.
        """
        if observation is None:
            self._end(row, "stop")
            return
        if self._length[row] + len(observation) >= self._room and observation:
            raise ValueError(
                f"an observation of {len(observation)} tokens after {self._length[row]} does not "
                f"fit in a context of {self._room} tokens; end the row instead"
            )
        if observation:
            self._forced[row] = deque(observation)
            self._in_turn[row] = 0
        elif self._exhausted(row):
            self._end(row, "length")
            return
        self.phase[row] = Phase.LIVE

    def rebatch(self, admitted: Sequence[int], leaving: Sequence[int] = ()) -> None:
        """Make the batch of the rows that are still active, less `leaving`, plus `admitted`.

        Equal sequences among the admitted rows are prefilled once.
        """
        gone = set(leaving)
        kept = [
            slot
            for slot, row in enumerate(self.slots.tolist())
            if self.phase[row] != Phase.DONE and row not in gone
        ]
        rows = [*self.slots[kept].tolist(), *admitted]
        self.slots = np.array(rows, dtype=np.int64)
        if not rows:
            self._cache = None
            return
        cache = self._decoder.new_cache(len(rows), _bucket(int(self._length[rows].max())))
        logits = []
        if self._cache is not None and kept:
            used = min(self._cache.columns, cache.columns)
            cache.put(0, self._cache, kept, used)
            logits.append(self._logits[kept])
        first = len(kept)
        for sequences, members in self._prefill_chunks(admitted):
            longest = max(map(len, sequences))
            chunk_logits, chunk = self._decoder.prefill(sequences, longest)
            cache.put(first, chunk, members, longest)
            logits.append(chunk_logits[members])
            first += len(members)
        self._cache = cache
        self._logits = torch.cat(logits)
        for row in admitted:
            self.phase[row] = Phase.LIVE

    def advance(self, steps: int) -> tuple[int, list[int]]:
        """Step until a row pauses, no row is live, or `steps` are done: steps and paused rows."""
        for done in range(1, steps + 1):
            paused = self.step()
            if paused or not self.any_live():
                return done, paused
        return steps, []

    def step(self) -> list[int]:
        """One token for each live row; the rows that paused at the stop string.

        Raises `FloatingPointError` when a live row's logits are not numbers.
        """
        rows = self.slots
        live = self.phase[rows] == Phase.LIVE
        tokens, logprobs = self._draw(rows)
        sampled = live.copy()
        for slot in [s for s, row in enumerate(rows.tolist()) if live[s] and row in self._forced]:
            row = int(rows[slot])
            tokens[slot], logprobs[slot], sampled[slot] = self._forced[row].popleft(), 0.0, False
            if not self._forced[row]:
                del self._forced[row]
        if not np.isfinite(logprobs[sampled]).all():
            raise FloatingPointError(
                "the model's logits are not finite numbers: its weights have diverged"
            )
        self._write(rows[live], tokens[live], logprobs[live], sampled[live])
        positions = self._length[rows] - 1
        paused = self._events(rows[sampled], tokens[sampled])
        if (self.phase[rows] != Phase.DONE).any():
            self._feed(self._last[rows], positions)
        return paused

    def _draw(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        sampling, device = self._sampling, self._decoder.device
        uniforms = self._streams.take(rows, self._generated[rows])
        tokens, logprobs = draw(
            self._logits,
            torch.from_numpy(uniforms).to(device),
            sampling.temperature,
            sampling.top_p,
        )
        return tokens.cpu().numpy(), logprobs.double().cpu().numpy()

    def _write(
        self,
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
        logprobs: NDArray[np.float64],
        sampled: NDArray[np.bool_],
    ) -> None:
        at = self._written[rows]
        if at.size and at.max() >= self._ids.shape[1]:
            self._widen()
        self._ids[rows, at] = tokens
        self._mask[rows, at] = sampled
        self._logprobs[rows, at] = logprobs
        self._last[rows] = tokens
        self._written[rows] += 1
        self._length[rows] += 1
        self._generated[rows] += sampled
        self._in_turn[rows] += sampled

    def _events(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> list[int]:
        """End rows at end-of-text tokens and limits; return those that completed the stop."""
        for row in rows[self._ends[tokens]].tolist():
            self._end(row, "eos")
        paused = []
        if self._stop is not None:
            may_stop = self._stop.candidates[tokens] & ~self._ends[tokens]
            for row in rows[may_stop].tolist():
                end = self._written[row]
                turn = self._ids[row, end - self._in_turn[row] : end]
                if self._stop.completed_by_last(turn.tolist()):
                    self.phase[row] = Phase.WAITING
                    self._finish[row] = _FINISH.index("stop")
                    paused.append(row)
        full = (self._in_turn[rows] >= self._sampling.max_turn_tokens) | (
            self._length[rows] >= self._room
        )
        for row in rows[full & (self.phase[rows] == Phase.LIVE)].tolist():
            self._end(row, "length")
        return paused

    def _feed(self, tokens: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        assert self._cache is not None
        used = int(positions.max()) + 1
        if used > self._cache.columns:
            grown = self._decoder.new_cache(len(tokens), _bucket(used))
            grown.put(0, self._cache, range(len(tokens)), self._cache.columns)
            self._cache = grown
        device = self._decoder.device
        self._logits = self._decoder.step(
            torch.from_numpy(tokens).to(device),
            torch.from_numpy(positions).to(device),
            used,
            self._cache,
        )

    def _prefill_chunks(self, rows: Sequence[int]) -> list[tuple[list[list[int]], list[int]]]:
        """Distinct sequences, at most a token budget a chunk, each with its rows' index in it."""
        chunks: list[tuple[list[list[int]], list[int]]] = []
        place: dict[tuple[int, ...], int] = {}
        longest = 0
        for row in rows:
            sequence = (*self._prompts[row].ids, *self._ids[row, : self._written[row]].tolist())
            longest = max(longest, len(sequence))
            if not chunks or longest * (len(place) + 1) > _PREFILL_TOKENS:
                chunks.append(([], []))
                place, longest = {}, len(sequence)
            sequences, members = chunks[-1]
            if sequence not in place:
                place[sequence] = len(sequences)
                sequences.append(list(sequence))
                self.prefill_tokens += len(sequence)
            members.append(place[sequence])
        return chunks

    def _exhausted(self, row: int) -> bool:
        return bool(
            self._in_turn[row] >= self._sampling.max_turn_tokens or self._length[row] >= self._room
        )

    def _end(self, row: int, finish: Finish) -> None:
        self.phase[row] = Phase.DONE
        self._finish[row] = _FINISH.index(finish)

    def _widen(self) -> None:
        count, width = self._ids.shape
        self._ids = np.concatenate([self._ids, np.zeros((count, width), dtype=np.int64)], axis=1)
        self._mask = np.concatenate([self._mask, np.zeros((count, width), dtype=bool)], axis=1)
        self._logprobs = np.concatenate([self._logprobs, np.zeros((count, width))], axis=1)

    def _check(self, row: int, prompt: Prompt) -> None:
        if not prompt.ids:
            raise ValueError(f"prompt {row} has no tokens; a row needs at least one")
        if not 0 <= min(prompt.ids) <= max(prompt.ids) < self._decoder.vocabulary:
            raise ValueError(
                f"prompt {row} holds a token outside 0…{self._decoder.vocabulary - 1}; "
                "its tokenizer is not this model's"
            )
        if len(prompt.ids) >= self._room:
            raise ValueError(
                f"prompt {row} has {len(prompt.ids)} tokens and the context is {self._room}: "
                "shorten the prompt or raise max_context_tokens"
            )


def _bucket(columns: int) -> int:
    """Columns to allocate: room for more tokens, but little, since small caches are fast."""
    step = max(_COLUMN_STEP, columns // 8)
    return (columns // step + 1) * step
