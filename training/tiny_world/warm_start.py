"""The warm start: next-token training on the tiny world's demonstrations.

Two phases: the first shows flawless solutions alone, because copying the numbers of a problem into
a call is learned late, all at once, and only while nothing else competes for the gradient.  Once
that is learned, the second shows the full ladder of flaws and curriculum documents.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from training.tiny_world.documents import Flaws, curriculum_document, solver_document
from training.tiny_world.grammar import make_problem
from training.tiny_world.tokenizer import encode_document

Progress = Callable[[int, int, dict[str, float]], None]

_COPYING_LOSS = 0.06  # nats a token; before numbers are copied at all it stays above 0.4
_FIRST_PHASE_LIMIT = 0.6
_RAMP_STEPS = 50
_DECAY_SHARE = 0.4
_FLOOR = 0.03
_CLIP = 1.0
_REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class _Phase:
    """What a phase shows: the share of curriculum documents and the flaws of all documents."""

    curriculum_share: float
    flaws: Flaws


_FLAWLESS = Flaws(guess_low=0.0, guess_high=0.0, wrong_call=0.0, no_answer=0.0, second_call=0.0)
_FIRST = _Phase(curriculum_share=0.0, flaws=_FLAWLESS)
_SECOND = _Phase(curriculum_share=0.3, flaws=Flaws())


@dataclass(frozen=True, slots=True)
class Recipe:
    """Length and speed of a warm start: optimiser steps, documents a step, peak learning rate."""

    steps: int
    batch: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Prompts:
    """What stands before a curriculum and a solver document; the latter holds ``{problem}``."""

    curriculum: str
    executor: str


def warm_start(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Prompts,
    recipe: Recipe,
    seed: int,
    excluded: Collection[str],
    progress: Progress | None = None,
) -> float:
    """Train ``model`` in place and return the smoothed loss at the end, in nats a learned token.

    Documents are drawn from ``seed`` alone and never show a problem in ``excluded``.  ``progress``
    is called with (steps done, steps in all, numbers to report).
    """
    rng = random.Random(seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True
    )
    model.train()
    phase = _FIRST
    smoothed = float("nan")
    if progress is not None:
        progress(0, recipe.steps, {})
    for step in range(recipe.steps):
        rate = recipe.learning_rate * _schedule(step, recipe.steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        if smoothed < _COPYING_LOSS or step >= _FIRST_PHASE_LIMIT * recipe.steps:
            phase = _SECOND
        ids, learned = _batch(rng, tokenizer, prompts, recipe.batch, excluded, phase)
        loss = _loss(model, ids, learned)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimiser.step()
        smoothed = loss.item() if step == 0 else 0.95 * smoothed + 0.05 * loss.item()
        if progress is not None and ((step + 1) % _REPORT_EVERY == 0 or step + 1 == recipe.steps):
            progress(step + 1, recipe.steps, {"loss": smoothed, "learning_rate": rate})
    model.eval()
    return smoothed


def _schedule(step: int, steps: int) -> float:
    """Share of the peak rate: a linear ramp, a plateau, and a linear decay to a small floor."""
    ramp = min(1.0, (step + 1) / _RAMP_STEPS)
    decay = min(1.0, max(_FLOOR, (1 - step / steps) / _DECAY_SHARE))
    return ramp * decay


def _batch(
    rng: random.Random,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Prompts,
    size: int,
    excluded: Collection[str],
    phase: _Phase,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and learned mask, both [size, longest], right-padded with id 0 and False."""
    rows: list[tuple[list[int], list[bool]]] = []
    while len(rows) < size:
        problem = make_problem(rng)
        if problem in excluded:
            continue
        if rng.random() < phase.curriculum_share:
            document = curriculum_document(rng, problem, prompts.curriculum, phase.flaws)
        else:
            prompt = prompts.executor.replace("{problem}", problem)
            document = solver_document(rng, problem, prompt, phase.flaws)
        rows.append(encode_document(tokenizer, document))
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(size, longest, dtype=torch.long)
    learned = torch.zeros(size, longest, dtype=torch.bool)
    for row, (row_ids, row_learned) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        learned[row, : len(row_learned)] = torch.tensor(row_learned)
    return ids, learned


def _loss(model: Qwen3ForCausalLM, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over the learned tokens of a batch."""
    # Right padding needs no attention mask under causal attention: real tokens never see it.
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    chosen = learned[:, 1:]
    return functional.cross_entropy(model.lm_head(hidden[chosen]), ids[:, 1:][chosen])
