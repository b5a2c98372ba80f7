"""Model folders in Hugging Face format: load, save, digest.

Weights are read from safetensors only, and code that comes with a model never runs unless the
caller opts in.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()  # stages write logs, where a bar is noise

DTypeName = Literal["float32", "bfloat16"]
DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelError(ValueError):
    """A model folder cannot be used; the message names it and the remedy."""


def load_model(
    path: Path | str, dtype: DTypeName = "float32", *, remote_code: bool = False
) -> PreTrainedModel:
    """The causal language model in a folder, in evaluation mode, on the CPU.

    Raises `ModelError` when the folder, its configuration or any of its weights are missing or
    damaged, when the dtype is unknown, or when the model needs code of its own and `remote_code`
    is off.
    """
    folder = _folder(path)
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"no .safetensors weights in {folder}; convert the model with save_pretrained first"
        )
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES[dtype],
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"cannot load the model in {folder}: {_one_line(error)}") from error
    model, report = loaded
    if report["missing_keys"]:  # transformers would go on with random numbers in their place
        raise ModelError(
            f"the weights in {folder} lack {', '.join(sorted(report['missing_keys'])[:3])}; "
            "the folder is incomplete: fetch or save the model again"
        )
    checked: PreTrainedModel = model.eval()
    return checked


def load_tokenizer(path: Path | str, *, remote_code: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer in a model folder.

    Raises `ModelError` when there is none, when it is not a fast one (rollouts need
    tokenizer.json), or when it names no end-of-text token.
    """
    folder = _folder(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=remote_code
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load the tokenizer in {folder}: {_one_line(error)}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"the tokenizer in {folder} has no tokenizer.json; convert it to one")
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the tokenizer in {folder} names no eos_token; set it in its config")
    return tokenizer


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, path: Path | str
) -> None:
    """Write weights (safetensors), configuration and tokenizer into one folder."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def weights_digest(model: PreTrainedModel) -> str:
    """sha256 over the names, dtypes, shapes and bytes of all weights, in the order of names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _folder(path: Path | str) -> Path:
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise ModelError(f"no model in {folder}: it has no config.json; check the path")
    return folder


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
