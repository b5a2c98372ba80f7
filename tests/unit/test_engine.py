"""The embedded engine: equal to transformers, reproducible, and patient with tools."""

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
import torch
from rollout_parts import byte_tokenizer, chain_model, random_model, token
from transformers import PreTrainedModel

from training.errors import NumericError
from training.rollout.decoder import Decoder, UnsupportedModelError
from training.rollout.engine import Prompt, Sampled, Sampling
from training.rollout.transformers_engine import TransformersEngine

TOKENIZER = byte_tokenizer("</python>")
FAMILIES = [
    ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 16, "tie_word_embeddings": False}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}),
    ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
]


async def end_row(_row: int, _sampled: Sampled) -> Sequence[int] | None:
    return None


def prompts(count: int, length: int = 6, seed: int = 0) -> list[Prompt]:
    rng = random.Random(seed)
    return [
        Prompt(tuple(rng.randrange(2, 258) for _ in range(rng.randint(1, length))), seed=row)
        for row in range(count)
    ]


def run(
    engine: TransformersEngine,
    rows: Sequence[Prompt],
    sampling: Sampling,
    turn: Callable[[int, Sampled], Awaitable[Sequence[int] | None]] = end_row,
) -> list[Sampled]:
    return asyncio.run(engine.sample(rows, sampling, turn))


def reference_logits(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([list(ids)])).logits[0]


@pytest.mark.parametrize(("family", "settings"), FAMILIES)
def test_logits_equal_transformers(family: str, settings: dict[str, object]) -> None:
    model = random_model(family, **settings)
    decoder = Decoder(model)
    rows = [list(prompt.ids) for prompt in prompts(5, length=40)]
    logits, cache = decoder.prefill(rows, 64)
    for _ in range(8):
        for row, ids in enumerate(rows):
            torch.testing.assert_close(
                logits[row], reference_logits(model, ids)[-1], atol=1e-4, rtol=0
            )
        following = logits.argmax(-1)
        positions = torch.tensor([len(ids) for ids in rows])
        for ids, new in zip(rows, following.tolist(), strict=True):
            ids.append(new)
        logits = decoder.step(following, positions, int(positions.max()) + 1, cache)


@pytest.mark.parametrize(("family", "settings"), FAMILIES)
def test_greedy_equals_generate(family: str, settings: dict[str, object]) -> None:
    model = random_model(family, **settings)
    engine = TransformersEngine(model, TOKENIZER)
    rows = prompts(6, length=20)
    sampled = run(engine, rows, Sampling(temperature=0.0, max_turn_tokens=40))
    for prompt, ours in zip(rows, sampled, strict=True):
        theirs = model.generate(
            input_ids=torch.tensor([prompt.ids]),
            attention_mask=torch.ones(1, len(prompt.ids), dtype=torch.long),
            max_new_tokens=40,
            do_sample=False,
        )
        assert ours.ids == theirs[0, len(prompt.ids) :].tolist()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.3, 0.8), (0.0, 1.0)])
def test_logprobs_are_the_untempered_policys(temperature: float, top_p: float) -> None:
    model = random_model("qwen3", head_dim=16)
    engine = TransformersEngine(model, TOKENIZER)
    rows = prompts(4)
    sampling = Sampling(temperature=temperature, top_p=top_p, max_turn_tokens=12)
    for prompt, sampled in zip(rows, run(engine, rows, sampling), strict=True):
        ids = [*prompt.ids, *sampled.ids]
        logps = reference_logits(model, ids).log_softmax(-1)
        expected = [logps[at - 1, ids[at]].item() for at in range(len(prompt.ids), len(ids))]
        assert sampled.logprobs == pytest.approx(expected, abs=1e-4)
        assert sampled.mask == [1] * len(sampled.ids)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.6)])
def test_first_tokens_follow_the_distribution(temperature: float, top_p: float) -> None:
    model = random_model("qwen3", head_dim=16, vocabulary=260, initializer_range=0.1)
    engine = TransformersEngine(model, TOKENIZER_PLAIN, wave_rows=4096)
    count = 4000
    rows = [Prompt((5, 6, 7), seed) for seed in range(count)]
    sampled = run(engine, rows, Sampling(temperature=temperature, top_p=top_p, max_turn_tokens=1))
    expected = (reference_logits(model, (5, 6, 7))[-1] / temperature).softmax(-1)
    ordered, index = expected.sort(descending=True)
    inside = ordered.cumsum(-1) - ordered < top_p
    expected[index[~inside]] = 0
    expected /= expected.sum()
    observed = torch.zeros_like(expected)
    for row in sampled:
        observed[row.ids[0]] += 1 / count
    assert observed[expected == 0].sum() == 0
    for probability, frequency in zip(expected.tolist(), observed.tolist(), strict=True):
        spread = math.sqrt(probability * (1 - probability) / count)
        assert abs(probability - frequency) < 5 * spread + 2 / count


TOKENIZER_PLAIN = byte_tokenizer()


def test_equal_seeds_draw_equal_rows_and_others_differ() -> None:
    engine = TransformersEngine(random_model("llama"), TOKENIZER)
    rows = [Prompt((5, 6, 7), seed) for seed in (1, 2, 1, 3)]
    first, second, third, fourth = run(engine, rows, Sampling(max_turn_tokens=30))
    assert first == third
    assert len({tuple(row.ids) for row in (first, second, fourth)}) == 3


def test_a_rows_tokens_do_not_depend_on_its_neighbours() -> None:
    engine = TransformersEngine(random_model("llama"), TOKENIZER)
    rows = prompts(24)
    together = run(engine, rows, Sampling(max_turn_tokens=20))
    for row in (0, 7, 23):
        (alone,) = run(engine, [rows[row]], Sampling(max_turn_tokens=20))
        assert alone.ids == together[row].ids


def test_a_small_wave_is_refilled_and_gives_the_same_rows() -> None:
    model = random_model("llama", eos_token_id=[1, *range(10, 40)])
    rows = prompts(40)
    sampling = Sampling(max_turn_tokens=30)
    wide = run(TransformersEngine(model, TOKENIZER), rows, sampling)
    narrow_engine = TransformersEngine(model, TOKENIZER, wave_rows=8)
    narrow = run(narrow_engine, rows, sampling)
    assert [row.ids for row in narrow] == [row.ids for row in wide]
    assert {row.finish for row in wide} == {"eos", "length"}
    assert narrow_engine.metrics()["batches"] > 5


def test_equal_prompts_are_prefilled_once() -> None:
    engine = TransformersEngine(random_model("llama"), TOKENIZER)
    run(engine, [Prompt((5, 6, 7), 1), Prompt((8, 9), 2)] * 8, Sampling(max_turn_tokens=2))
    assert engine.metrics()["prefill_tokens"] == 5


def test_observations_are_forced_masked_and_attended_to() -> None:
    model = random_model("qwen3", vocabulary=len(TOKENIZER), head_dim=16)
    engine = TransformersEngine(model, TOKENIZER)
    observation = [20, 21, 22, 23]

    async def turn(_row: int, sampled: Sampled) -> Sequence[int] | None:
        await asyncio.sleep(0.001)
        return observation if sum(sampled.mask) == len(sampled.mask) else None

    rows = [Prompt((5, 6), seed) for seed in range(400)]
    sampled = run(engine, rows, Sampling(max_turn_tokens=40, stop="</python>"), turn)
    paused = [row for row in sampled if 0 in row.mask]
    assert len(paused) > 5
    stop = token(TOKENIZER, "</python>")
    for row in paused:
        at = row.mask.index(0)
        assert row.ids[at - 1] == stop
        assert row.ids[at : at + 4] == observation
        assert row.mask.count(0) == 4
        assert row.logprobs[at : at + 4] == [0.0] * 4
        ids = [5, 6, *row.ids]
        logps = reference_logits(model, ids).log_softmax(-1)
        for position, generated in enumerate(row.mask):
            if generated:
                expected = logps[position + 1, row.ids[position]].item()
                assert row.logprobs[position] == pytest.approx(expected, abs=1e-4)


def test_tool_times_do_not_change_a_bit() -> None:
    model = random_model("qwen3", vocabulary=len(TOKENIZER), head_dim=16)
    rows = [Prompt((5, 6), seed) for seed in range(200)]

    def sample(delays: random.Random) -> list[Sampled]:
        async def turn(row: int, _sampled: Sampled) -> Sequence[int] | None:
            await asyncio.sleep(delays.choice((0.0, 0.001, 0.02)))
            return [30 + row % 5] * (row % 4 + 1)

        engine = TransformersEngine(model, TOKENIZER, wave_rows=64, grace_seconds=60)
        return run(engine, rows, Sampling(max_turn_tokens=40, stop="</python>"), turn)

    first, second = sample(random.Random(1)), sample(random.Random(2))
    assert sum(0 in row.mask for row in first) > 5
    assert first == second


def test_one_slow_tool_does_not_hold_the_others() -> None:
    """The slow call returns only once another row has gone through all its turns."""
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>", "o": "</python>"})
    engine = TransformersEngine(model, tokenizer, grace_seconds=0.05)
    ask, reply = (token(tokenizer, piece) for piece in "qo")
    turns = [0, 0]

    async def go() -> list[Sampled]:
        others_done = asyncio.Event()

        async def turn(row: int, _sampled: Sampled) -> Sequence[int] | None:
            turns[row] += 1
            if row == 0 and turns[0] == 1:
                await others_done.wait()
            if row == 1 and turns[1] == 40:
                others_done.set()
            return [reply] if turns[row] < 40 else None

        return await engine.sample(
            [Prompt((ask,), 1), Prompt((ask,), 2)], Sampling(stop="</python>"), turn
        )

    slow, fast = asyncio.run(asyncio.wait_for(go(), 60))
    assert slow.ids == fast.ids
    assert slow.ids.count(reply) == 39
    assert engine.metrics()["parked_rows"] == 1


def test_an_empty_answer_goes_on_with_the_turn() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>", "</python>": "x", "x": "y", "y": "z"})
    engine = TransformersEngine(model, tokenizer)
    ask = Prompt((token(tokenizer, "q"),), 1)

    async def turn(_row: int, _sampled: Sampled) -> Sequence[int] | None:
        return []

    (row,) = run(engine, [ask], Sampling(temperature=0, stop="</python>"), turn)
    assert tokenizer.decode(row.ids) == "</python>xyz<eos>"
    assert row.finish == "eos"
    (cut,) = run(engine, [ask], Sampling(temperature=0, stop="</python>", max_turn_tokens=3), turn)
    assert tokenizer.decode(cut.ids) == "</python>xy"
    assert cut.finish == "length"


def test_the_token_count_of_a_turn_starts_anew_after_an_observation() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "a", "a": "</python>", "o": "x", "x": "y", "y": "y"})
    engine = TransformersEngine(model, tokenizer)

    async def turn(_row: int, _sampled: Sampled) -> Sequence[int] | None:
        return [token(tokenizer, "o")]

    (row,) = run(
        engine,
        [Prompt((token(tokenizer, "q"),), 1)],
        Sampling(temperature=0, stop="</python>", max_turn_tokens=4),
        turn,
    )
    assert tokenizer.decode(row.ids) == "a</python>oxyyy"
    assert row.finish == "length"


@pytest.mark.parametrize("pieces", [(), ("</", "thon>"), ("</python>\n",), ("n>\n\n",)])
def test_the_stop_string_may_be_any_tokens(pieces: tuple[str, ...]) -> None:
    """It is found however it is split, and the turn ends after the token that completes it."""
    tokenizer = byte_tokenizer(*pieces)
    written = {
        (): "</python>",
        ("</", "thon>"): "</python>",
        ("</python>\n",): "</python>\n",
        ("n>\n\n",): "</python>\n\n",
    }[pieces]
    ids = tokenizer.encode(written, add_special_tokens=False)
    chain = [token(tokenizer, "q"), *ids, token(tokenizer, "!")]
    names = [tokenizer.decode([one]) for one in chain]
    model = chain_model(tokenizer, dict(itertools.pairwise(names)))
    engine = TransformersEngine(model, tokenizer)
    seen: list[list[int]] = []

    async def turn(_row: int, sampled: Sampled) -> Sequence[int] | None:
        seen.append(sampled.ids)
        return None

    (row,) = run(engine, [Prompt((chain[0],), 1)], Sampling(0.0, stop="</python>"), turn)
    assert seen == [ids]
    assert row.ids == ids
    assert row.finish == "stop"


def test_without_a_stop_nothing_pauses() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>", "</python>": "x"})
    (row,) = run(
        TransformersEngine(model, tokenizer),
        [Prompt((token(tokenizer, "q"),), 1)],
        Sampling(temperature=0),
    )
    assert tokenizer.decode(row.ids) == "</python>x<eos>"


def test_the_context_bounds_prompt_and_output() -> None:
    model = random_model("llama", eos_token_id=1)
    engine = TransformersEngine(model, TOKENIZER)
    (row,) = run(engine, [Prompt((5,) * 250, 3)], Sampling())
    assert engine.context == 256
    assert len(row.ids) == 6 or row.finish == "eos"
    (row,) = run(engine, [Prompt((5, 6), 3)], Sampling(max_context_tokens=9))
    assert len(row.ids) == 7 or row.finish == "eos"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [((), "no tokens"), ((5, 290), "tokenizer is not this model's"), ((5,) * 256, "shorten")],
)
def test_prompts_that_cannot_be_sampled_are_refused(prompt: tuple[int, ...], message: str) -> None:
    engine = TransformersEngine(random_model("llama"), TOKENIZER)
    with pytest.raises(ValueError, match=message):
        run(engine, [Prompt((5,), 1), Prompt(prompt, 2)], Sampling())


def test_an_observation_that_leaves_no_room_is_refused() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>"})

    async def turn(_row: int, _sampled: Sampled) -> Sequence[int] | None:
        return [7] * 8

    with pytest.raises(ValueError, match="does not fit"):
        run(
            TransformersEngine(model, tokenizer),
            [Prompt((token(tokenizer, "q"),), 1)],
            Sampling(stop="</python>", max_context_tokens=10),
            turn,
        )


def test_a_failing_handler_ends_the_call_and_cancels_the_rest() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>"})
    cancelled = []

    async def turn(row: int, _sampled: Sampled) -> Sequence[int] | None:
        await asyncio.sleep(0)
        if row == 0:
            raise RuntimeError("broken handler")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(row)
            raise
        return None

    ask = token(tokenizer, "q")
    with pytest.raises(RuntimeError, match="broken handler"):
        run(
            TransformersEngine(model, tokenizer),
            [Prompt((ask,), 1), Prompt((ask,), 2)],
            Sampling(stop="</python>"),
            turn,
        )
    assert cancelled == [1]


def test_update_takes_over_new_weights() -> None:
    model = random_model("qwen3", head_dim=16)
    engine = TransformersEngine(model, TOKENIZER)
    rows, sampling = prompts(3), Sampling(temperature=0, max_turn_tokens=20)
    before = run(engine, rows, sampling)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7).add_(0.01)
    engine.update(model)
    after = run(engine, rows, sampling)
    fresh = run(TransformersEngine(model, TOKENIZER), rows, sampling)
    assert after == fresh
    assert [row.ids for row in after] != [row.ids for row in before]


def test_diverged_weights_are_a_numeric_failure() -> None:
    model = random_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[5].fill_(float("nan"))
    with pytest.raises(NumericError, match="diverged"):
        run(TransformersEngine(model, TOKENIZER), [Prompt((5,), 1)], Sampling())


def test_bfloat16_stays_close_to_transformers() -> None:
    model = random_model("qwen3", head_dim=16).to(torch.bfloat16)
    decoder = Decoder(model)
    logits, cache = decoder.prefill([[5, 6, 7, 8]], 16)
    assert logits.dtype == torch.float32
    expected = reference_logits(model, (5, 6, 7, 8))[-1].float()
    assert (logits[0] - expected).abs().max() < 0.05 * expected.abs().max()
    logits = decoder.step(torch.tensor([9]), torch.tensor([4]), 5, cache)
    expected = reference_logits(model, (5, 6, 7, 8, 9))[-1].float()
    assert (logits[0] - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "'linear'"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, "sliding"),
        ("llama", {"hidden_act": "gelu"}, "'gelu'"),
    ],
)
def test_models_it_would_compute_wrongly_are_refused(
    family: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        Decoder(random_model(family, **settings))


@pytest.mark.parametrize(
    "settings", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"max_turns": 0}]
)
def test_impossible_sampling_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Sampling(**settings)  # type: ignore[arg-type]


def test_metrics_count_tokens_and_waits() -> None:
    tokenizer = byte_tokenizer("</python>")
    model = chain_model(tokenizer, {"q": "</python>", "o": "x"})
    engine = TransformersEngine(model, tokenizer)

    async def turn(_row: int, _sampled: Sampled) -> Sequence[int] | None:
        await asyncio.sleep(0.02)
        return [token(tokenizer, "o")]

    run(engine, [Prompt((token(tokenizer, "q"),), 1)], Sampling(0.0, stop="</python>"), turn)
    metrics = engine.metrics()
    assert metrics["generated_tokens"] == 3
    assert metrics["observation_tokens"] == 1
    assert metrics["prefill_tokens"] == 1
    assert metrics["tokens_per_second"] > 0
    assert 0 < metrics["tool_wait_share"] <= 1
