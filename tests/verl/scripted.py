"""A model folder whose weights are a script: each token decides which tokens may follow it.

Attention and feed-forward give nothing, so the logits are a table over the last token. The script
makes it call its tool half of the time; what the tool prints decides how it goes on.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.models import save_model

EOS, PAD, UNKNOWN = "<eos>", "<pad>", "<unk>"
CODE = "print(6 * 7)"
TOKENS = (
    *(PAD, EOS, UNKNOWN),
    *("<python>", "</python>", CODE, "\n", "<output>", "</output>", "?"),
    *("Final Answer: 41", "Final Answer: 42", "4", "2"),
)
SCRIPT: Mapping[str, Mapping[str, float]] = {
    "?": {"<python>": 0.5, "Final Answer: 41": 0.3, "Final Answer: 42": 0.2},
    "<python>": {CODE: 1.0},
    CODE: {"</python>": 1.0},
    "</python>": {EOS: 1.0},
    "\n": {"Final Answer: 42": 0.9, "Final Answer: 41": 0.1},
    "Final Answer: 41": {EOS: 1.0},
    "Final Answer: 42": {EOS: 1.0},
}
"""Probabilities of the next token; an observation ends in a line feed, a prompt in a question."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word of the script."""
    made = Tokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(TOKENS)}, merges=[], unk_token=UNKNOWN)
    )
    made.add_tokens([AddedToken(t, normalized=False, special=False) for t in TOKENS[3:]])
    made.add_special_tokens([AddedToken(t, special=True) for t in TOKENS[:3]])
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=EOS, pad_token=PAD, unk_token=UNKNOWN
    )


def write_model(
    folder: Path, script: Mapping[str, Mapping[str, float]] = SCRIPT, positions: int = 128
) -> None:
    """Save a model that follows a script, with its tokenizer."""
    words, size = tokenizer(), len(TOKENS)
    width = 32
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=size,
            hidden_size=width,
            intermediate_size=width,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=positions,
            tie_word_embeddings=False,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )
    core = model.model
    with torch.no_grad():
        for layer in core.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        core.embed_tokens.weight.copy_(torch.eye(size, width))
        scale = math.sqrt(width)  # what the final norm makes of a unit vector
        table = torch.full((size, size), -30.0)
        for last, following in script.items():
            for word, share in following.items():
                table[TOKENS.index(last), TOKENS.index(word)] = math.log(share)
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, :size] = table.t() / scale
    model.generation_config.eos_token_id = words.eos_token_id
    save_model(model, words, folder)
