"""The built-in base model: reproducible bytes, a usable folder, and a base worth training."""

import torch
from safetensors.torch import load_file

from training.config import TinyModel
from training.models import load_model, load_tokenizer
from training.prompts import template_path
from training.tiny_world.build import build_tiny
from training.tiny_world.warm_start import Prompts

SHORT = TinyModel(warm_start_steps=60, warm_start_batch=16)
PROMPTS = Prompts(*(template_path(f"tiny_{n}").read_text() for n in ("curriculum", "executor")))


def build(folder, seed, progress=None):
    return build_tiny(SHORT, PROMPTS, seed, folder, progress)


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_weights(tmp_path):
    state = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        build(tmp_path / name, seed)
    assert torch.equal(torch.get_rng_state(), state)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "b").iterdir())
    for file in files:
        first, second, other = ((tmp_path / n / file).read_bytes() for n in ("a", "b", "c"))
        assert first == second, file
        assert (first == other) == (file != "model.safetensors"), file


def test_the_folder_loads_and_progress_is_told(tmp_path):
    told = []
    metrics = build(tmp_path, 0, lambda done, total, numbers: told.append((done, total, numbers)))
    model, tokenizer = load_model(tmp_path), load_tokenizer(tmp_path)
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    assert model.config.tie_word_embeddings
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert metrics["parameters"] == sum(p.numel() for p in model.parameters())
    assert all(weight.dtype == torch.float32 for weight in model.state_dict().values())
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert [done for done, _, _ in told] == [0, 50, 60]
    assert all(total == 60 for _, total, _ in told)
    assert told[-1][2]["loss"] == metrics["warm_start_loss"] < told[1][2]["loss"]
