"""Parts for the rollout tests: small tokenizers, random models, and models that follow a script."""

from collections.abc import Mapping

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ("<pad>", "<eos>")


def byte_tokenizer(*pieces: str) -> PreTrainedTokenizerFast:
    """One token a byte, two special ones, and `pieces` as whole tokens of ordinary text."""
    vocabulary = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    backend.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def token(tokenizer: PreTrainedTokenizerFast, piece: str) -> int:
    ids = tokenizer.encode(piece, add_special_tokens=False)
    assert len(ids) == 1, f"{piece!r} is not one token"
    return ids[0]


def random_model(family: str, vocabulary: int = 290, **overrides: object) -> PreTrainedModel:
    """A small model of a family whose weights, norms and biases are all random, in float32."""
    torch.manual_seed(7)
    config_class, model_class = {
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[family]
    settings: dict[str, object] = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "max_position_embeddings": 256,
        "initializer_range": 0.15,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
        **overrides,
    }
    model = model_class(config_class(**settings)).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, 0.9, 0.3)
    return model


def chain_model(
    tokenizer: PreTrainedTokenizerFast, successors: Mapping[str, str | tuple[str, ...]]
) -> PreTrainedModel:
    """A Llama whose next token depends on the last one alone, as `successors` says.

    Of several successors each is equally likely; a token without any leads to end of text.
    """
    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=8,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        head = torch.zeros(size, size)
        head[1] = 2.0
        for piece, following in successors.items():
            for next_piece in (following,) if isinstance(following, str) else following:
                head[token(tokenizer, next_piece), token(tokenizer, piece)] = 8.0
        model.lm_head.weight.copy_(head)
    return model
