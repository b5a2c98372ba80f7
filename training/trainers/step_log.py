"""Append-only JSON lines of a stage, one or more a step, that survive kill -9 and a resume."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class StepLog:
    """A JSON-lines file whose records each name their `step`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, records: Iterable[Mapping[str, Any]]) -> None:
        """Add the records of one step, with `step` as their first key."""
        lines = [json.dumps({"step": step, **r}, ensure_ascii=False) + "\n" for r in records]
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def cut(self, step: int) -> None:
        """Keep the records of the steps before `step`, of which a resumed stage repeats the rest.

        A last line without its end is the work of a kill and goes too; the file is replaced in one
        rename. A file that does not exist is created empty, so that no record is an empty file.
        """
        kept: list[str] = []
        if self.path.exists():
            with self.path.open(encoding="utf-8") as file:
                kept = [x for x in file if x.endswith("\n") and json.loads(x)["step"] < step]
        new = self.path.with_name(self.path.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.path)

    def sync(self) -> None:
        """Put the records on the disk; a checkpoint must not be ahead of them."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
