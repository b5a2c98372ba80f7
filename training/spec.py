"""What a stage is told, and the identity that follows from it before anything runs."""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from training.errors import ConfigError

NUMERIC_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "sacrebleu", "safetensors")
GPU_LIBRARIES = (*NUMERIC_LIBRARIES, "verl", "vllm")
_PROJECT = Path(__file__).parents[1]
_ASK = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = "absent"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class StageSpec:
    """One stage of one iteration.

    ``config`` holds only the sections the stage may read; ``runtime`` holds their fields that say
    where or how fast (never part of the identity), and ``paths`` where the ``files`` lie.
    """

    stage: str
    iteration: int
    seed: int
    config: dict[str, Any]
    inputs: dict[str, str]
    """Name of the input → identity of its stage."""
    files: dict[str, str]
    """Name of a template or data file → sha256 of its contents."""
    code: str
    libraries: dict[str, str]
    paths: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """sha256 (hex) of all that decides the result; equal identity means equal bytes on CPU."""
        parts = asdict(self)
        del parts["paths"], parts["runtime"]
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write spec.json."""
        path.write_text(json.dumps(asdict(self), indent=2, sort_keys=True), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read spec.json."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def canonical_json(value: Any) -> str:
    """JSON with one spelling a value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Readable ``key: old → new`` lines for two nested mappings."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a!r} → {b!r}")
    return lines


@cache
def library_versions() -> dict[str, str]:
    """Versions of the libraries whose numerics a result depends on."""
    found = {}
    for name in NUMERIC_LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def interpreter(name: str) -> Path:
    """The file that `trainer.python` names."""
    return _PROJECT / name


@cache
def versions_elsewhere(python: Path) -> dict[str, str]:
    """`library_versions` of another interpreter, with those of the GPU backend.

    All are absent where there is no such file; whoever starts it says so. Raises `ConfigError` for
    one that cannot answer.
    """
    if not python.is_file():
        return dict.fromkeys(GPU_LIBRARIES, "absent")
    command = [str(python), "-I", "-c", _ASK, *GPU_LIBRARIES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"trainer.python {python} does not say its libraries ({type(error).__name__}); name "
            "the Python of verl's environment"
        ) from error


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's contents, or of a folder's names and contents."""
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{file.relative_to(path)} {file_digest(file)}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
