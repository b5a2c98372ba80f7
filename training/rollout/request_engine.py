"""An engine over requests: each turn of each row is one request to a server that samples tokens.

All rows are in flight at once and none waits for another.  The prompt of a later turn is the
row's own beginning, so a server with prefix caching computes only what is new.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from training.errors import InfraError
from training.rollout.engine import Finish, Prompt, Sampled, Sampling, TurnHandler
from training.seeds import derive_seed


@dataclass(frozen=True)
class Request:
    """What a server is asked: at most `max_tokens` tokens after `ids`.

    It ends at one of `eos_ids`, or at the token that completes `stop`; either is part of the
    answer.  `session` names the row, so that a balancer can keep its turns on one server, and
    `seed` is this request's own.
    """

    session: str
    ids: Sequence[int]
    max_tokens: int
    temperature: float
    top_p: float
    stop: str | None
    eos_ids: frozenset[int]
    seed: int


@dataclass(frozen=True)
class Completion:
    """The sampled tokens, their log-probabilities at temperature 1, and why they end."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish: Finish


Complete = Callable[[Request], Awaitable[Completion]]


class RequestEngine:
    """An `Engine` (see `training.rollout.engine`) over `complete`.

    `context` is the most tokens a row may have and `deadline_seconds` the longest that one
    request may take.
    """

    def __init__(
        self,
        complete: Complete,
        *,
        eos_ids: frozenset[int],
        context: int,
        deadline_seconds: float,
    ) -> None:
        self._complete = complete
        self._eos_ids, self._context, self._deadline = eos_ids, context, deadline_seconds
        self._rows = 0
        self._totals = dict.fromkeys(
            ("generated_tokens", "observation_tokens", "requests", "seconds", "tool_seconds"), 0.0
        )

    @property
    def eos_ids(self) -> frozenset[int]:
        """Token ids that end a row."""
        return self._eos_ids

    @property
    def context(self) -> int:
        """Most tokens a row may have, prompt included."""
        return self._context

    def update(self, model: PreTrainedModel) -> None:
        """Refused: who owns the server gives it its weights."""
        raise TypeError("a server's weights are changed by its owner, not through its engine")

    def metrics(self) -> dict[str, float]:
        """Totals since the engine was made.

        Token counts, requests, seconds in `sample`, generated `tokens_per_second` of those, and
        the seconds that rows spent with their tools, added up over the rows.
        """
        seconds = max(self._totals["seconds"], 1e-9)
        return {**self._totals, "tokens_per_second": self._totals["generated_tokens"] / seconds}

    async def sample(
        self, prompts: Sequence[Prompt], sampling: Sampling, turn: TurnHandler
    ) -> list[Sampled]:
        """Sample every prompt to its end; see `training.rollout.engine.Engine`.

        What `turn` raises is raised here, after the other rows have been cancelled.  Raises
        `InfraError` when a request fails or outlives its deadline.
        """
        limit = min(sampling.max_context_tokens or self._context, self._context)
        for number, prompt in enumerate(prompts):
            _check(number, prompt, limit)
        started = time.monotonic()
        rows = [
            asyncio.ensure_future(self._row(index, prompt, sampling, limit, turn))
            for index, prompt in enumerate(prompts)
        ]
        try:
            return await asyncio.gather(*rows)
        finally:
            for row in rows:
                row.cancel()
            await asyncio.gather(*rows, return_exceptions=True)
            self._totals["seconds"] += time.monotonic() - started

    async def _row(
        self, index: int, prompt: Prompt, sampling: Sampling, limit: int, turn: TurnHandler
    ) -> Sampled:
        self._rows += 1
        session = f"row-{self._rows}"
        row = Sampled()
        in_turn = number = 0
        while True:
            room = limit - len(prompt.ids) - len(row.ids)
            most = min(sampling.max_turn_tokens - in_turn, room)
            if most <= 0:
                row.finish = "length"
                return row
            found = await self._request(
                Request(
                    session=session,
                    ids=[*prompt.ids, *row.ids],
                    max_tokens=most,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    stop=sampling.stop,
                    eos_ids=self._eos_ids,
                    seed=derive_seed(prompt.seed, number),
                )
            )
            row.ids += found.ids
            row.mask += [1] * len(found.ids)
            row.logprobs += found.logprobs
            row.finish = found.finish
            if found.finish != "stop":
                return row
            asked = time.monotonic()
            seen = await turn(index, row)
            self._totals["tool_seconds"] += time.monotonic() - asked
            if seen is None:
                return row
            in_turn = 0 if seen else in_turn + len(found.ids)
            row.ids += seen
            row.mask += [0] * len(seen)
            row.logprobs += [0.0] * len(seen)
            self._totals["observation_tokens"] += len(seen)
            number += 1

    async def _request(self, request: Request) -> Completion:
        try:
            async with asyncio.timeout(self._deadline):
                found = await self._complete(request)
        except TimeoutError:
            raise InfraError(
                f"the engine did not answer a request within {self._deadline:g} s; look at its "
                "log, then retry"
            ) from None
        if not len(found.ids) == len(found.logprobs) <= request.max_tokens or not found.ids:
            raise InfraError(
                f"the engine answered {len(found.ids)} tokens with {len(found.logprobs)} "
                f"log-probabilities to a request for at most {request.max_tokens}"
            )
        self._totals["requests"] += 1
        self._totals["generated_tokens"] += len(found.ids)
        return found


def _check(number: int, prompt: Prompt, limit: int) -> None:
    if not prompt.ids:
        raise ValueError(f"prompt {number} has no tokens; a row needs at least one")
    if len(prompt.ids) >= limit:
        raise ValueError(
            f"prompt {number} has {len(prompt.ids)} tokens and the context is {limit}: "
            "shorten the prompt or raise max_context_tokens"
        )
