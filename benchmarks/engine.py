"""Sampled tokens/s of the embedded engine against plain `generate`, one thread against one thread.

    python benchmarks/engine.py [--rows 256] [--group 8] [--tokens 48] [--repeats 5] [--ends 12]

Both sample at temperature 1 from the same randomly initialised models and prompts, in one
process, in turn; the best of the repeats counts.  Twelve of the 290 tokens end a row, so that
rows have about 21 tokens on average, as the tiny world's have; tokens after the end are not
counted.  With `--ends 1` nearly every row goes to its limit, which is what `generate` does best:
it never drops a row that has ended.  The engine also records every token's log-probability.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.rollout.engine import Prompt, Sampled, Sampling
from training.rollout.transformers_engine import TransformersEngine

SIZES = {
    "tiny (0.09M)": {"hidden_size": 64, "layers": 2, "heads": 2, "kv": 1, "ff": 128},
    "small (0.6M)": {"hidden_size": 128, "layers": 4, "heads": 4, "kv": 2, "ff": 256},
}
VOCABULARY = 290


def make_model(
    hidden_size: int, layers: int, heads: int, kv: int, ff: int, ends: int
) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=32,
        intermediate_size=ff,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=0,
        eos_token_id=list(range(1, ends + 1)),
    )
    return Qwen3ForCausalLM(config).eval()


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level vocabulary of the models' size; the speed of tokenising is not measured."""
    pieces = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pieces += [f"<{index}>" for index in range(VOCABULARY - len(pieces))]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<pad>"), AddedToken("<eos>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")


def make_prompts(count: int) -> list[tuple[int, ...]]:
    """Random prompts of 18 to 30 tokens, as the tiny world's are."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(18, 31, (count,), generator=generator).tolist()
    return [
        tuple(torch.randint(20, VOCABULARY, (length,), generator=generator).tolist())
        for length in lengths
    ]


def run_engine(
    engine: TransformersEngine, rows: Sequence[tuple[int, ...]], tokens: int
) -> tuple[int, float]:
    async def end_row(_row: int, _sampled: Sampled) -> None:
        return None

    prompts = [Prompt(ids, seed) for seed, ids in enumerate(rows)]
    sampling = Sampling(max_turn_tokens=tokens)
    started = time.perf_counter()
    sampled = asyncio.run(engine.sample(prompts, sampling, end_row))
    return sum(len(row.ids) for row in sampled), time.perf_counter() - started


def run_generate(
    model: PreTrainedModel, rows: Sequence[tuple[int, ...]], tokens: int
) -> tuple[int, float]:
    run: Any = model.generate  # its published type is that of a tensor
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.tensor(row)
        mask[index, width - len(row) :] = 1
    started = time.perf_counter()
    output = run(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=tokens,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    seconds = time.perf_counter() - started
    ends = torch.isin(output[:, width:], torch.tensor(model.generation_config.eos_token_id)).int()
    return int((ends.cumsum(-1) - ends == 0).sum()), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--group", type=int, default=8, help="rows that share a prompt")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ends", type=int, default=12, help="tokens that end a row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    distinct = make_prompts(-(-arguments.rows // arguments.group))
    rows = [distinct[index // arguments.group] for index in range(arguments.rows)]
    print(f"{arguments.rows} rows, {arguments.tokens} tokens a row at most, one thread")
    for name, size in SIZES.items():
        model = make_model(**size, ends=arguments.ends)
        engine = TransformersEngine(model, tokenizer)
        ours = theirs = 0.0
        for _ in range(arguments.repeats):
            count, seconds = run_engine(engine, rows, arguments.tokens)
            ours = max(ours, count / seconds)
            count, seconds = run_generate(model, rows, arguments.tokens)
            theirs = max(theirs, count / seconds)
        print(
            f"{name:14} {model.num_parameters():>8} parameters: engine {ours:8.0f} tokens/s, "
            f"generate {theirs:8.0f} tokens/s, ratio {ours / theirs:.2f}"
        )


if __name__ == "__main__":
    main()
