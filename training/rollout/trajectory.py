"""The record of one sampled trajectory: what training, votes, ledgers and reports read."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a trajectory counts in its group (docs/method.md section 2)."""

    VALID = "valid"
    INVALID = "invalid"
    MISSING = "missing"
    INFRA = "infra"


class Stop(StrEnum):
    """Why sampling ended."""

    EOS = "eos"
    FINAL = "final"
    LENGTH = "length"
    TURNS = "turns"
    CONTEXT = "context"
    INFRA = "infra"


@dataclass(slots=True)
class ToolCall:
    """One complete code block of a trajectory.

    `turn` counts from 1, `seconds` is the run time the sandbox reported, and `counted` tells
    whether the call belongs to N_tool: refused code ran nowhere and does not.
    """

    turn: int
    verdict: str
    seconds: float
    counted: bool


@dataclass(slots=True)
class Trajectory:
    """Token ids as sampled, never re-tokenised, with everything that is computed from them.

    `output_ids`, `mask` and `logprobs` have one length: the tokens after the prompt, generated
    ones (mask 1) and observations (mask 0).  `logprobs` are those of the sampling policy at
    temperature 1 whatever the sampling temperature was, and 0.0 on observations.  `text` is the
    generated text alone, with the end-of-text token left out and a line break where an
    observation stood.  `label` is set exactly when `status` is valid.
    """

    task: str
    prompt_ids: list[int]
    output_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    turns: int
    calls: list[ToolCall]
    status: Status
    label: str | None
    reason: str
    stop: Stop
    seed: int
    text: str

    @property
    def n_tool(self) -> int:
        """Executed sandbox calls, N_tool of docs/method.md section 3 (before the cap)."""
        return sum(call.counted for call in self.calls)

    @property
    def truncated(self) -> bool:
        """Whether it ran out of tokens."""
        return self.stop in (Stop.LENGTH, Stop.CONTEXT)

    def to_json(self) -> dict[str, Any]:
        """Plain values for one JSON line; `from_json` gives the equal record back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Trajectory":
        """The record that `to_json` wrote.

        Raises `TypeError` when a field is absent or unknown and `ValueError` for an unknown
        status or stop.
        """
        values = dict(record)
        values["status"] = Status(values["status"])
        values["stop"] = Stop(values["stop"])
        values["calls"] = [ToolCall(**call) for call in values["calls"]]
        return cls(**values)
