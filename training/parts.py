"""The parts of an artifact that may go before the whole does: weights and raw records.

Retention takes a part away once nobody needs it. Which part a stage reads of an input follows from
the two names alone, so that a plan can say what has to be there before a stage may run.
"""

from typing import Literal

Part = Literal["weights", "raw"]

RAW: dict[str, frozenset[str]] = {
    "curriculum": frozenset({"candidates.jsonl", "anchor_groups.jsonl"}),
    "task_pool": frozenset({"tasks.jsonl"}),
}
"""Stage → files of its artifact that hold raw records; a ledger or a sample of them stays."""

_FOLDER_OF_WEIGHTS = "model/"
_RAW_FILES = frozenset[str]().union(*RAW.values())


def part_of(file: str) -> Part | None:
    """The part that a file of an artifact belongs to; None for what always stays."""
    if file.startswith(_FOLDER_OF_WEIGHTS):
        return "weights"
    return "raw" if file in _RAW_FILES else None


def needed_part(stage: str, name: str) -> Part:
    """The part that a stage reads of its input ``name``."""
    records = name == "task_pool" or (name == "curriculum" and stage != "curriculum")
    return "raw" if records else "weights"
