"""Responses and their grades on disk, one line each, so that a killed evaluation repeats nothing.

Two append-only files: `responses.jsonl` and `grades.jsonl`, the first line of each naming what made
them. A torn last line is cut off. Responses and grades that failed in our own machinery are written
too, but tried again when the evaluation is resumed; of two lines the later one counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.benchmarks.schema import Grade, GradeStatus

Key = tuple[str, str, int]
"""(benchmark, question id, sample)."""


@dataclass(frozen=True)
class Response:
    """What was generated for one job: generated text only, never observations.

    `truncated`: cut at a length or turn limit. `infra`: our machinery failed. `seed` is that of
    the sampling.
    """

    text: str
    truncated: bool = False
    infra: bool = False
    tool_calls: int = 0
    tokens: int = 0
    seed: int = 0


class Ledger:
    """The two files in a folder; opening them reads what is already there.

    Raises:
        ValueError: the folder holds responses that were made by something else than `made_by`.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.responses: dict[Key, Response] = {}
        self.grades: dict[Key, Grade] = {}
        self._streams = {}
        for name in ("responses", "grades"):
            path = folder / f"{name}.jsonl"
            lines = _whole_lines(path)
            if lines and lines[0] != {"made_by": dict(made_by)}:
                raise ValueError(
                    f"{path} was made by {json.dumps(lines[0].get('made_by'))} and not by "
                    f"{json.dumps(dict(made_by))}; evaluate into another folder"
                )
            for line in lines[1:]:
                self._take(name, line)
            self._streams[name] = path.open("a", encoding="utf-8")
            if not lines:
                self._write(name, {"made_by": dict(made_by)})

    def done(self, key: Key) -> bool:
        """True when the job has a response that need not be made again."""
        return key in self.responses and not self.responses[key].infra

    def graded(self, key: Key) -> bool:
        """True when the job's response has a grade that need not be made again."""
        return key in self.grades and self.grades[key].status is not GradeStatus.INFRA

    def add_response(self, key: Key, response: Response) -> None:
        """Keep a response."""
        self.responses[key] = response
        self.grades.pop(key, None)
        self._write("responses", _line(key, asdict(response)))

    def add_grade(self, key: Key, grade: Grade) -> None:
        """Keep a grade."""
        self.grades[key] = grade
        self._write("grades", _line(key, asdict(grade)))

    def close(self) -> None:
        """Close both files."""
        for stream in self._streams.values():
            stream.close()

    def _take(self, name: str, line: dict[str, Any]) -> None:
        key = (line.pop("benchmark"), line.pop("id"), line.pop("sample"))
        if name == "responses":
            self.responses[key] = Response(**line)
            self.grades.pop(key, None)
        else:
            self.grades[key] = Grade(**{**line, "status": GradeStatus(line["status"])})

    def _write(self, name: str, line: dict[str, Any]) -> None:
        self._streams[name].write(json.dumps(line, ensure_ascii=False) + "\n")
        self._streams[name].flush()


def _line(key: Key, values: dict[str, Any]) -> dict[str, Any]:
    return {"benchmark": key[0], "id": key[1], "sample": key[2], **values}


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The file's lines; a last one that a kill tore is cut off the file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]
