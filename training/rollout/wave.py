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

from training.errors import NumericError
from training.rollout.decoder import Decoder
from training.rollout.draw import Streams, draw
from training.rollout.engine import Finish, Prompt, Sampled, Sampling
from training.rollout.kv_cache import Cache
from training.rollout.stop_string import StopString
from training.rollout.tape import Tape

_COLUMN_STEP = 16
_PREFILL_TOKENS = 16_384


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
        self._room = min(sampling.max_context_tokens or decoder.context, decoder.context)
        for row, prompt in enumerate(prompts):
            self._check(row, prompt)
        self._ends = np.zeros(decoder.vocabulary, dtype=bool)
        self._ends[[token for token in eos_ids if token < decoder.vocabulary]] = True
        self._streams = Streams([prompt.seed for prompt in prompts])
        self._tape = Tape(len(prompts))
        self._phase = np.full(len(prompts), Phase.QUEUED, dtype=np.int8)
        self._finish: list[Finish] = ["length"] * len(prompts)
        self._forced: dict[int, deque[int]] = {}
        self._length = np.array([len(prompt.ids) for prompt in prompts], dtype=np.int64)
        self._last = np.array([prompt.ids[-1] for prompt in prompts], dtype=np.int64)
        self._slots: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._cache: Cache | None = None
        self._logits = torch.empty(0)
        self.prefill_tokens = 0

    @property
    def generated_tokens(self) -> int:
        return int(self._tape.generated.sum())

    @property
    def observation_tokens(self) -> int:
        return int(self._tape.written.sum()) - self.generated_tokens

    @property
    def slots(self) -> int:
        """Rows of the batch, finished ones included."""
        return len(self._slots)

    def active(self) -> int:
        """Rows of the batch that are not finished."""
        return int((self._phase[self._slots] != Phase.DONE).sum())

    def any_live(self) -> bool:
        return bool((self._phase[self._slots] == Phase.LIVE).any())

    def is_done(self, row: int) -> bool:
        return bool(self._phase[row] == Phase.DONE)

    def row(self, row: int) -> Sampled:
        """A copy of the row's tokens so far."""
        return self._tape.record(row, self._finish[row])

    def resume(self, row: int, observation: Sequence[int] | None) -> None:
        """Settle a waiting row as a `TurnHandler` answers.

        Raises `ValueError` when the observation leaves the row no room to go on.
        """
        if observation is None:
            self._end(row, "stop")
            return
        if observation and self._length[row] + len(observation) >= self._room:
            raise ValueError(
                f"an observation of {len(observation)} tokens after {self._length[row]} does not "
                f"fit in a context of {self._room} tokens; end the row instead"
            )
        self._phase[row] = Phase.LIVE
        if observation:
            self._forced[row] = deque(observation)
            self._tape.in_turn[row] = 0
        else:
            self._end_full(np.array([row]))

    def rebatch(self, admitted: Sequence[int], leaving: Sequence[int] = ()) -> None:
        """Make the batch of the rows that are still active, less `leaving`, plus `admitted`.

        Equal sequences among the admitted rows are prefilled once.
        """
        gone = set(leaving)
        kept = [
            slot
            for slot, row in enumerate(self._slots.tolist())
            if self._phase[row] != Phase.DONE and row not in gone
        ]
        rows = [*self._slots[kept].tolist(), *admitted]
        self._slots = np.array(rows, dtype=np.int64)
        if not rows:
            self._cache = None
            return
        cache = self._decoder.new_cache(len(rows), _columns(int(self._length[rows].max())))
        logits = []
        if self._cache is not None and kept:
            cache.put(0, self._cache, kept, min(self._cache.columns, cache.columns))
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
        self._phase[list(admitted)] = Phase.LIVE

    def advance(self, steps: int) -> tuple[int, list[int]]:
        """Step until a row pauses, no row is live, or `steps` are done: steps and paused rows."""
        for done in range(1, steps + 1):
            paused = self.step()
            if paused or not self.any_live():
                return done, paused
        return steps, []

    def step(self) -> list[int]:
        """One token for each live row; the rows that paused at the stop string.

        Raises `NumericError` when a live row's logits are not numbers.
        """
        rows = self._slots
        live = self._phase[rows] == Phase.LIVE
        tokens, logprobs = self._draw(rows)
        sampled = live.copy()
        if self._forced:
            for slot, row in enumerate(rows.tolist()):
                if live[slot] and row in self._forced:
                    tokens[slot], logprobs[slot] = self._forced[row].popleft(), 0.0
                    sampled[slot] = False
                    if not self._forced[row]:
                        del self._forced[row]
        if not np.isfinite(logprobs[sampled]).all():
            raise NumericError(
                "the model's logits are not finite numbers: its weights have diverged"
            )
        advanced = rows[live]
        self._tape.write(advanced, tokens[live], logprobs[live], sampled[live])
        self._last[advanced] = tokens[live]
        self._length[advanced] += 1
        paused = self._events(rows[sampled], tokens[sampled])
        if self.active():
            self._feed()
        return paused

    def _draw(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        uniforms = torch.from_numpy(self._streams.take(rows, self._tape.generated[rows]))
        tokens, logprobs = draw(
            self._logits,
            uniforms.to(self._decoder.device),
            self._sampling.temperature,
            self._sampling.top_p,
        )
        return tokens.cpu().numpy(), logprobs.double().cpu().numpy()

    def _events(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> list[int]:
        """End rows at end-of-text tokens and limits; return those that completed the stop."""
        ended = self._ends[tokens]
        for row in rows[ended].tolist():
            self._end(row, "eos")
        paused = []
        if self._stop is not None:
            for row in rows[self._stop.candidates[tokens] & ~ended].tolist():
                if self._stop.completed_by_last(self._tape.turn_ids(row)):
                    self._phase[row] = Phase.WAITING
                    self._finish[row] = "stop"
                    paused.append(row)
        self._end_full(rows)
        return paused

    def _end_full(self, rows: NDArray[np.int64]) -> None:
        """End the live ones of `rows` that may not go on."""
        full = (self._tape.in_turn[rows] >= self._sampling.max_turn_tokens) | (
            self._length[rows] >= self._room
        )
        for row in rows[full & (self._phase[rows] == Phase.LIVE)].tolist():
            self._end(row, "length")

    def _end(self, row: int, finish: Finish) -> None:
        self._phase[row] = Phase.DONE
        self._finish[row] = finish

    def _feed(self) -> None:
        """Put every row's last token at its position; for a row that waits this changes nothing."""
        assert self._cache is not None
        rows, device = self._slots, self._decoder.device
        positions = self._length[rows] - 1
        used = int(positions.max()) + 1
        if used > self._cache.columns:
            grown = self._decoder.new_cache(len(rows), _columns(used))
            grown.put(0, self._cache, range(len(rows)), self._cache.columns)
            self._cache = grown
        self._logits = self._decoder.step(
            torch.from_numpy(self._last[rows]).to(device),
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
            sequence = (*self._prompts[row].ids, *self._tape.ids(row))
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


def _columns(used: int) -> int:
    """Columns to allocate: room for more tokens, but little, since small caches are fast."""
    step = max(_COLUMN_STEP, used // 8)
    return (used // step + 1) * step
