"""What the tool loop asks of an engine that samples tokens.

An engine knows tokens and one stop string; it knows nothing of tools, answers or groups.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from transformers import PreTrainedModel

Finish = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """How rows are sampled.

    `temperature` 0 is greedy.  `max_turn_tokens` bounds the generated tokens of one turn, and
    `max_context_tokens` prompt, generated and observation tokens together (None: as many as the
    model has positions).  `stop` is the string whose completion pauses a row.  `max_turns` is
    read by the tool loop alone.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_turns: int = 8
    max_turn_tokens: int = 4096
    max_context_tokens: int | None = None
    stop: str | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}; use 0 (greedy) or above")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; use a share above 0 and at most 1")
        for name in ("max_turns", "max_turn_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use at least 1")


@dataclass(frozen=True)
class Prompt:
    """One row to sample: its prompt's token ids and the seed of its own random stream."""

    ids: tuple[int, ...]
    seed: int


@dataclass(slots=True)
class Sampled:
    """The tokens of one row after its prompt, so far or in the end.

    `ids`, `mask` and `logprobs` have one length (see `Trajectory`).  `finish`: an end-of-text
    token was sampled (eos), the stop string was completed (stop), or a length limit was met
    (length).
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish = "length"


TurnHandler = Callable[[int, Sampled], Awaitable[Sequence[int] | None]]
"""Called with a row's index and its tokens when the row has completed the stop string.

None ends the row.  Token ids are appended as an observation (mask 0) and a new turn is sampled.
An empty sequence means that the turn goes on: its token count is not reset.  A row that ends by
itself, at an end-of-text token or a length limit, is not asked about.
"""


class Engine(Protocol):
    """Samples many rows at once; see `Sampling`, `Sampled` and `TurnHandler`."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Token ids that end a row."""
        ...

    @property
    def context(self) -> int:
        """Most tokens a row may have, prompt included."""
        ...

    async def sample(
        self, prompts: Sequence[Prompt], sampling: Sampling, turn: TurnHandler
    ) -> list[Sampled]:
        """One `Sampled` a prompt, in the order of the prompts."""
        ...

    def update(self, model: PreTrainedModel) -> None:
        """Sample from these weights from now on."""
        ...

    def metrics(self) -> dict[str, float]:
        """Totals since the engine was made: tokens, seconds, waits."""
        ...
