"""Model folders: what is written is what is read, and what cannot be read is said."""

from pathlib import Path

import pytest
import torch
from rollout_parts import byte_tokenizer, random_model
from safetensors.torch import load_file, save_file

from training.models import ModelError, load_model, load_tokenizer, save_model, weights_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(random_model("qwen3", head_dim=16), byte_tokenizer("<python>"), tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_loads_bit_for_bit(folder: Path) -> None:
    original = random_model("qwen3", head_dim=16)
    loaded = load_model(folder)
    assert weights_digest(loaded) == weights_digest(original)
    assert not loaded.training
    assert loaded.config._attn_implementation == "sdpa"
    for name, tensor in original.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_dtype_is_what_was_asked_for(folder: Path) -> None:
    assert load_model(folder, "bfloat16").dtype == torch.bfloat16


def test_the_digest_sees_one_changed_weight_and_the_dtype(folder: Path) -> None:
    model = load_model(folder)
    before = weights_digest(model)
    with torch.no_grad():
        next(model.parameters()).view(-1)[3] += 1e-3
    assert weights_digest(model) != before
    assert weights_digest(load_model(folder, "bfloat16")) != before


def test_the_tokenizer_survives_the_folder(folder: Path) -> None:
    text = "<python>print('é')\n</python>  2<eos>"
    original = byte_tokenizer("<python>")
    loaded = load_tokenizer(folder)
    ids = loaded.encode(text, add_special_tokens=False)
    assert ids == original.encode(text, add_special_tokens=False)
    assert loaded.decode(ids) == text


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    for load in (load_model, load_tokenizer):
        with pytest.raises(ModelError, match=r"no model in .*config\.json"):
            load(tmp_path)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_model(folder)


def test_an_unknown_dtype_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="'int8'"):
        load_model(folder, "int8")  # type: ignore[arg-type]


def test_remote_code_does_not_run(folder: Path) -> None:
    config = folder / "config.json"
    ran = folder / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    text = config.read_text().replace('"model_type": "qwen3"', '"model_type": "evil"')
    config.write_text(text.replace("{", '{"auto_map": {"AutoConfig": "evil.Config"},', 1))
    with pytest.raises(ModelError, match="cannot load"):
        load_model(folder)
    assert not ran.exists()


def test_a_damaged_file_is_one_sentence(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(folder)


def test_missing_weights_are_not_made_up(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(folder)


def test_a_tokenizer_without_an_end_is_refused(folder: Path) -> None:
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"eos_token"', '"eos_token_not"'))
    with pytest.raises(ModelError, match="eos_token"):
        load_tokenizer(folder)
