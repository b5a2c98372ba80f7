"""What came of a sandbox call, and what of it the model gets to see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The supervisor's own finding; nothing a program prints can change it."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    INFRA = "infra"
    """The sandbox failed, not the program: resample, never reward."""


@dataclass(frozen=True)
class CallResult:
    """One call. `seconds` is the program's wall time, without waiting for a free supervisor."""

    verdict: Verdict
    stdout: str
    exit_code: int | None
    signal: int | None
    seconds: float
    truncated: bool
    """Whether stdout was longer than kept."""
    stderr: str
    """The end of stderr, for ledgers. Never shown to the model."""


_NOTICES = {
    Verdict.OK: "",
    Verdict.ERROR: "[The code stopped with an error.]",
    Verdict.TIMEOUT: "[The code ran out of time and was stopped.]",
    Verdict.OUT_OF_MEMORY: "[The code ran out of memory and was stopped.]",
    Verdict.OUTPUT_LIMIT: "[The code printed too much and was stopped.]",
}


def observation(result: CallResult) -> str:
    """The text the model reads: stdout, and one fixed sentence if the call was not ok.

    Raises ValueError for an infra failure, which no model may ever see.
    """
    if result.verdict is Verdict.INFRA:
        raise ValueError("an infra failure is no observation: resample the trajectory")
    notice = _NOTICES[result.verdict]
    if not notice:
        return result.stdout
    gap = "" if not result.stdout or result.stdout.endswith("\n") else "\n"
    return result.stdout + gap + notice
