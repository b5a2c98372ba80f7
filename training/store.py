"""The store: one folder an identity, with work that survives attempts and a whole artifact.

An artifact is done when its manifest verifies; nothing else says so. Publication is a rename of a
complete, synced folder. Locks (flock) save work; the attempt number is what keeps a late process
from publishing over a newer one.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from training.disk import REMEDY, is_full
from training.errors import DiskFullError, InfraError, TakenError
from training.locking import is_held, try_exclusive
from training.parts import Part, part_of
from training.spec import canonical_json, file_digest

MANIFEST = "manifest.json"
RESULT = "result.json"
RETIRED = "retired.json"


@dataclass(frozen=True)
class Place:
    """The folder of one identity."""

    root: Path

    @property
    def work(self) -> Path:
        """Checkpoints, metrics, progress and logs; survives attempts."""
        return self.root / "work"

    @property
    def artifact(self) -> Path:
        """The published payload with manifest.json and result.json."""
        return self.root / "artifact"

    @property
    def payload(self) -> Path:
        """Where an attempt assembles what it will publish."""
        return self.work / "payload"

    @property
    def spec(self) -> Path:
        """spec.json, what the stage was told."""
        return self.root / "spec.json"

    @property
    def failure(self) -> Path:
        """failure.json of the last attempt that failed."""
        return self.work / "failure.json"


@dataclass(frozen=True)
class Manifest:
    """Names, sizes and digests of a published artifact."""

    files: dict[str, dict[str, Any]]
    payload_sha256: str
    """One digest over all files but result.json, whose timings differ between rebuilds."""
    retired: frozenset[str] = frozenset()
    """Files that retention took away: what remains is whole, and what they were is known."""

    @property
    def retired_parts(self) -> set[Part | None]:
        """The parts that are no longer there."""
        return {part_of(name) for name in self.retired}


class Store:
    """All artifacts under one folder, private to the user (mode 0700)."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def place(self, identity: str) -> Place:
        """The folder of an identity, whether or not it exists."""
        return Place(self.root / identity)

    def verify(self, identity: str, full: bool = False) -> Manifest | None:
        """The manifest if the artifact is there and whole but for what was retired, else None.

        Files whose size and time stamp are those of the last full check are not read again,
        unless a ``full`` check is asked for.
        """
        place = self.place(identity)
        try:
            raw = json.loads((place.artifact / MANIFEST).read_text(encoding="utf-8"))
            retired = frozenset(_read_json(place.artifact / RETIRED).get("files", []))
            manifest = Manifest(raw["files"], raw["payload_sha256"], retired)
            if full:  # a bit that the disk lost must also be seen by the next who asks
                (place.root / "verified.json").unlink(missing_ok=True)
            seen = _read_json(place.root / "verified.json")
            checked = {}
            for name, expected in manifest.files.items():
                if name in retired:
                    continue
                path = place.artifact / name
                stat = path.stat()
                stamp = [stat.st_size, stat.st_mtime_ns, expected["sha256"]]
                if stat.st_size != expected["size"]:
                    return None
                if seen.get(name) != stamp and file_digest(path) != expected["sha256"]:
                    return None
                checked[name] = stamp
        except (OSError, KeyError, ValueError, TypeError):
            return None
        if checked != seen:
            with contextlib.suppress(OSError):  # a read-only store is verified in full each time
                write_atomic(place.root / "verified.json", json.dumps(checked))
        return manifest

    def result(self, identity: str) -> dict[str, Any]:
        """result.json of a published artifact."""
        path = self.place(identity).artifact / RESULT
        return dict(json.loads(path.read_text(encoding="utf-8")))

    def damaged(self, identity: str) -> bool:
        """Whether something is published under this identity that no longer verifies."""
        return self.place(identity).artifact.exists() and self.verify(identity) is None

    def stale_inputs(self, identity: str) -> list[str]:
        """Inputs of a verified artifact whose bytes are no longer those it was computed from.

        An input that is absent (discarded by retention) is not stale.
        """
        stale = []
        for name, used in self.result(identity).get("inputs", {}).items():
            current = self.verify(used["identity"])
            if current is not None and current.payload_sha256 != used["payload_sha256"]:
                stale.append(name)
        return stale

    def found(self, identity: str) -> Manifest | None:
        """The manifest of an artifact that may be used: it verifies and is not stale."""
        manifest = self.verify(identity)
        return None if manifest is None or self.stale_inputs(identity) else manifest

    def retire(self, identity: str, files: Iterable[str], reason: str) -> None:
        """Note that these files of a verified artifact are no longer part of it, and why.

        From here on the artifact verifies without them, whether or not they are still there; to
        delete them is the caller's. Hold the lock (``exclusive``).
        """
        path = self.place(identity).artifact / RETIRED
        known = _read_json(path)
        record = {
            "files": sorted({*known.get("files", []), *files}),
            "reasons": [*known.get("reasons", []), {"reason": reason, "time": time.time()}],
        }
        write_atomic(path, json.dumps(record, indent=2))
        _sync(path.parent)

    def set_aside(self, identity: str) -> Path | None:
        """Move a damaged or stale artifact out of the way, keeping its bytes for inspection."""
        return _aside(self.place(identity).artifact)

    def start_again(self, identity: str) -> None:
        """Move artifact, checkpoints, metrics and logs out of the way, keeping them all.

        Raises InfraError naming the holder while somebody computes the stage.
        """
        with self.hold(identity):
            _aside(self.place(identity).artifact)
            _aside(self.place(identity).work)

    def publish(self, identity: str, attempt: int, result: dict[str, Any]) -> Manifest:
        """Publish ``work/payload`` with its result: synced, manifest last, renamed into place.

        Raises InfraError when a newer attempt has taken over (fencing).
        """
        place = self.place(identity)
        write_atomic(place.payload / RESULT, json.dumps(result, indent=2, sort_keys=True))
        files: dict[str, dict[str, Any]] = {}
        for path in sorted(p for p in place.payload.rglob("*") if p.is_file()):
            _sync(path)
            name = path.relative_to(place.payload).as_posix()
            files[name] = {"size": path.stat().st_size, "sha256": file_digest(path)}
        manifest = Manifest(files, payload_digest(files))
        write_atomic(
            place.payload / MANIFEST,
            json.dumps({"files": files, "payload_sha256": manifest.payload_sha256}, indent=2),
        )
        for folder in [place.payload, *(p for p in place.payload.rglob("*") if p.is_dir())]:
            _sync(folder)
        if self.attempt(identity) != attempt:
            raise InfraError(
                f"attempt {attempt} of {identity[:12]} was overtaken by attempt "
                f"{self.attempt(identity)}; its result is not published"
            )
        self.set_aside(identity)
        place.payload.rename(place.artifact)
        _sync(place.root)
        return manifest

    def attempt(self, identity: str) -> int:
        """Number of the newest attempt (0 before the first)."""
        try:
            return int((self.place(identity).root / "attempt").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def hold(self, identity: str, wait_seconds: float = 5.0) -> Iterator[int]:
        """Hold the lock of an identity and take the next attempt number.

        The lock dies with the process. Raises TakenError naming the holder when it is taken.
        """
        place = self.place(identity)
        place.work.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (place.root / "lock").open("a+", encoding="utf-8") as handle:
            deadline = time.monotonic() + wait_seconds
            while not try_exclusive(handle.fileno()):
                if time.monotonic() > deadline:
                    raise TakenError(
                        f"{identity[:12]} is being computed by {self.holder_text(identity)}; "
                        "wait for it or stop it"
                    )
                time.sleep(0.1)
            attempt = self.attempt(identity) + 1
            write_atomic(place.root / "attempt", str(attempt))
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "attempt": attempt}
            write_atomic(place.root / "holder.json", json.dumps(holder))
            yield attempt

    @contextlib.contextmanager
    def exclusive(self, identity: str) -> Iterator[bool]:
        """Hold the lock of an identity without an attempt of one's own; whether it was free."""
        with (self.place(identity).root / "lock").open("a+", encoding="utf-8") as handle:
            yield try_exclusive(handle.fileno())

    def holder(self, identity: str) -> dict[str, Any] | None:
        """Who holds the lock (pid, host, attempt), or None when it is free."""
        path = self.place(identity).root / "lock"
        if not path.exists():
            return None
        with path.open("a+", encoding="utf-8") as handle:
            if not is_held(handle.fileno()):
                return None
        return _read_json(self.place(identity).root / "holder.json")

    def holder_text(self, identity: str) -> str:
        """The holder as words for a message."""
        holder = _read_json(self.place(identity).root / "holder.json")
        return (
            f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
        )

    def adopt(self, old: str, new: str, record: dict[str, Any]) -> None:
        """Give a verified artifact a second identity (hard links), with a record of why.

        Raises InfraError when the old artifact does not verify or the new one exists.
        """
        if self.verify(old) is None:
            raise InfraError(f"{old[:12]} has no artifact that verifies; nothing to adopt")
        if self.verify(new) is not None:
            raise InfraError(f"{new[:12]} already has an artifact; nothing to adopt")
        target = self.place(new)
        target.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.set_aside(new)
        copy = target.root / "artifact.adopting"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.place(old).artifact, copy, copy_function=os.link)
        write_atomic(target.root / "adopted.json", json.dumps({"from": old, **record}, indent=2))
        copy.rename(target.artifact)
        _sync(target.root)


def _aside(path: Path) -> Path | None:
    if not path.exists():
        return None
    number = 1
    while (target := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(target)
    return target


def payload_digest(files: dict[str, dict[str, Any]]) -> str:
    """One digest over names and digests of all files but result.json."""
    kept = {name: entry["sha256"] for name, entry in files.items() if name != RESULT}
    return hashlib.sha256(canonical_json(kept).encode()).hexdigest()


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new content, also after a crash.

    Raises DiskFullError when the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if is_full(error):
            raise DiskFullError(
                f"no space left for {path.name} in {path.parent}; {REMEDY}"
            ) from error
        raise


def append_line(file: IO[bytes], line: bytes) -> None:
    """Append one line to an unbuffered file, whole or not at all.

    Raises DiskFullError when the disk is full.
    """
    before = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        os.truncate(file.fileno(), before)
        if is_full(error):
            raise DiskFullError(f"no space left for {Path(file.name).name}; {REMEDY}") from error
        raise


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
