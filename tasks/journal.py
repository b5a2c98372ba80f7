"""What a run wants its tracking server to know, in order, in a file of the run folder.

The journal is written first and sent later, so that a server that is down loses nothing, and a
driver that was killed goes on where it stopped. Each (part, key, step) enters it once, unless it
is a headline number that was computed again to another value.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from training.store import append_line


class Journal:
    """Append-only JSON lines, safe for one writing process with several threads.

    An entry is ``{"part": "parent" | "i<t>", "op": …, …}``; its offset is its byte position.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the journal at ``path``; a line torn by a crash is cut off."""
        self._path = path
        self._lock = threading.Lock()
        self._points: dict[tuple[str, str, int], float] = {}
        self._once: set[tuple[str, str]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        self._size = content.rfind(b"\n") + 1
        for line in content[: self._size].splitlines():
            self._remember(json.loads(line))
        self._file = path.open("ab", buffering=0)
        os.truncate(path, self._size)

    @property
    def size(self) -> int:
        """Bytes of complete entries: the offset behind the last one."""
        return self._size

    def add(self, part: str, op: str, **content: Any) -> None:
        """Append one entry. Raises DiskFullError, as all methods that append."""
        with self._lock:
            self._append({"part": part, "op": op, **content})

    def add_once(self, part: str, op: str, **content: Any) -> None:
        """Append one entry unless this part already has one of this operation."""
        with self._lock:
            if (part, op) not in self._once:
                self._append({"part": part, "op": op, **content})

    def add_points(
        self,
        part: str,
        step: int,
        values: Mapping[str, float],
        time_ms: int,
        revise: bool = False,
    ) -> int:
        """Append the values whose (part, key, step) is new; returns how many there were.

        ``revise`` also appends a known one that has another value now.
        """
        with self._lock:
            known = {k: self._points.get((part, k, step)) for k in values}
            new = {
                k: v for k, v in values.items() if known[k] is None or (revise and known[k] != v)
            }
            if new:
                self._append(
                    {"part": part, "op": "metrics", "step": step, "values": new, "time": time_ms}
                )
            return len(new)

    def has_part(self, part: str) -> bool:
        """Whether anything about this part was ever written."""
        with self._lock:
            return any(known == part for known, _ in self._once)

    def entries(self, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Entries from ``offset`` on, each with the offset behind it."""
        with self._path.open("rb") as file:
            file.seek(offset)
            while offset < self._size:
                line = file.readline()
                offset += len(line)
                yield json.loads(line), offset

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        append_line(self._file, line)
        self._size += len(line)
        self._remember(entry)

    def _remember(self, entry: Mapping[str, Any]) -> None:
        self._once.add((entry["part"], entry["op"]))
        if entry["op"] == "metrics":
            for key, value in entry["values"].items():
                self._points[entry["part"], key, entry["step"]] = value
