"""Weights from a folder or a model hub: copied into the store, so that a run owns what it uses.

Only safetensors and text files are taken.  Code that comes with a model stays behind unless the
caller opts in, which for a hub needs a pinned commit.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from httpx import HTTPError
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from training.errors import ConfigError, InfraError
from training.models import ModelError, load_tokenizer

_PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "README.md",
    "LICENSE*",
    "NOTICE*",
)
_CODE = "*.py"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LICENCE_LINE = re.compile(r"^license(?:_name)?:\s*['\"]?([^'\"\n]+)", re.MULTILINE)


def prepare_folder(source: Path, out: Path, *, remote_code: bool = False) -> dict[str, str]:
    """Copy a model folder to ``out`` and return its source, revision and licence.

    Raises:
        ConfigError: there is no model, it lacks safetensors or a tokenizer, or it needs code.
    """
    if not source.is_dir():
        raise ConfigError(f"model folder '{source}' does not exist; check model.name")
    _copy(source, out, str(source), remote_code)
    return {"source": str(source), "revision": "", "licence": read_licence(out)}


def prepare_hub(
    name: str, revision: str | None, out: Path, *, remote_code: bool = False
) -> dict[str, str]:
    """Copy a hub model to ``out`` and return its source, resolved commit and licence.

    What the hub's cache on this machine already holds is not downloaded again, and is all that is
    used when the hub is out of reach.

    Raises:
        ConfigError: no such model or revision, no safetensors, or code without a pinned commit.
        InfraError: the hub cannot be reached and the model is not in its cache.
    """
    if remote_code and not (revision and _COMMIT.fullmatch(revision)):
        raise ConfigError(
            f"model.remote_code runs code of '{name}': pin model.revision to a commit "
            f"(40 hexadecimal digits), not {revision!r}"
        )
    try:
        snapshot = snapshot_download(name, revision=revision, allow_patterns=_patterns(remote_code))
    except RevisionNotFoundError:
        raise ConfigError(f"model '{name}' has no revision '{revision}'") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise ConfigError(
            f"no model '{name}' on the hub, or it needs an access token; check model.name, or set "
            f"model.source to 'folder' and model.name to its path"
        ) from None
    except (OSError, HTTPError) as error:
        raise InfraError(
            f"model '{name}' could not be fetched from the hub ({type(error).__name__}) and is not "
            f"in its cache; retry, or set model.source to 'folder' and model.name to a local copy"
        ) from error
    folder = Path(snapshot)
    _copy(folder, out, name, remote_code)
    return {"source": name, "revision": folder.name, "licence": read_licence(out)}


def read_licence(folder: Path) -> str:
    """Licence that the model's README names in its header, or '' when it names none."""
    readme = folder / "README.md"
    if not readme.is_file():
        return ""
    parts = readme.read_text(encoding="utf-8", errors="replace").split("---", 2)
    found = _LICENCE_LINE.search(parts[1]) if len(parts) == 3 and not parts[0].strip() else None
    return found[1].strip() if found else ""


def _patterns(remote_code: bool) -> list[str]:
    return [*_PATTERNS, _CODE] if remote_code else list(_PATTERNS)


def _copy(source: Path, out: Path, name: str, remote_code: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for pattern in _patterns(remote_code):
        for file in sorted(source.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, out / file.name)
    _check(out, name, remote_code)


def _check(folder: Path, name: str, remote_code: bool) -> None:
    """Refuse what could not be loaded later, while the remedy is still cheap."""
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"'{name}' is no model: it has no config.json") from None
    except ValueError as error:
        raise ConfigError(f"config.json of '{name}' cannot be read: {error}") from error
    for missing in _missing_weights(folder):
        raise ConfigError(
            f"'{name}' lacks {missing}; only safetensors weights are read, so convert others with "
            f"save_pretrained first"
        )
    if "auto_map" in config and not remote_code:
        raise ConfigError(
            f"'{name}' brings code of its own, which is not run; if you trust it, set "
            f"model.remote_code to true and pin model.revision"
        )
    try:
        load_tokenizer(folder, remote_code=remote_code)
    except ModelError as error:
        raise ConfigError(str(error).replace(str(folder), name)) from error


def _missing_weights(folder: Path) -> list[str]:
    """Weight files that should be there and are not."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(file for file in files if not (folder / file).is_file())
    return [] if any(folder.glob("*.safetensors")) else ["a .safetensors file"]
