"""The built-in base model: a small Qwen3, warm-started until it has something to learn."""

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.config import TinyModel
from training.models import save_model
from training.seeds import derive_seed
from training.tiny_world.sets import excluded_problems
from training.tiny_world.tokenizer import CONTEXT, train_tokenizer
from training.tiny_world.warm_start import Progress, Prompts, Recipe, warm_start

_HEAD_CHANNELS = 32
_INITIAL_DEVIATION = 0.05


def build_tiny(
    settings: TinyModel,
    prompts: Prompts,
    seed: int,
    out: Path,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Write a warm-started model and its tokenizer to ``out`` in Hugging Face format.

    Everything random derives from ``seed``; on one thread, equal arguments give equal bytes.
    Returns the final loss (nats a learned token) and the number of parameters.
    """
    tokenizer = train_tokenizer(prompts.curriculum, prompts.executor, settings.vocabulary)
    model = new_model(settings, tokenizer, derive_seed(seed, "tiny_world", "weights"))
    recipe = Recipe(
        settings.warm_start_steps, settings.warm_start_batch, settings.warm_start_learning_rate
    )
    documents = derive_seed(seed, "tiny_world", "documents")
    loss = warm_start(model, tokenizer, prompts, recipe, documents, excluded_problems(), progress)
    save_model(model, tokenizer, out)
    return {"warm_start_loss": loss, "parameters": float(model.num_parameters())}


def new_model(
    settings: TinyModel, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Qwen3ForCausalLM:
    """An untrained float32 model of the given sizes for a tokenizer."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=settings.hidden,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                num_key_value_heads=settings.key_value_heads,
                head_dim=_HEAD_CHANNELS,
                intermediate_size=settings.feed_forward,
                max_position_embeddings=CONTEXT,
                initializer_range=_INITIAL_DEVIATION,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    finally:
        torch.set_rng_state(generator_state)
