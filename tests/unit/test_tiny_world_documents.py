"""Demonstrations: the shares of their flaws, and that they read as rollouts will."""

import re
from itertools import pairwise
from random import Random

import pytest

from training.algorithms.answers import read_output
from training.algorithms.candidate import read_candidate
from training.tiny_world.documents import EOS, Flaws, curriculum_document, solver_document
from training.tiny_world.grammar import KIND_NAMES, kind, make_problem, truth
from training.tiny_world.tokenizer import train_tokenizer
from training.tiny_world.warm_start import Prompts, Recipe, warm_start

PROMPT = "Solve.\n{problem}\n"
NO_FLAWS = Flaws(0, 0, 0, 0, 0, 0, 0)


def solver_documents(count, kind_name=None, flaws=None):
    rng = Random(5)
    flaws = flaws or Flaws()
    for _ in range(count):
        problem = make_problem(rng, kind_name)
        prompt = PROMPT.replace("{problem}", problem)
        yield problem, solver_document(rng, problem, prompt, flaws)


def written(document):
    return "".join(span.text for span in document if span.learned)


def test_the_model_learns_what_it_writes_and_neither_prompt_nor_observations():
    for problem, document in solver_documents(200):
        assert document[0].text == PROMPT.replace("{problem}", problem)
        assert not document[0].learned
        assert "<output>" not in written(document)
        assert written(document).endswith(EOS)
        for span, after in pairwise(document):
            if span.text.endswith("</python>"):
                assert span.learned
                assert re.fullmatch(r"\n<output>-?\d+</output>\n", after.text)
                assert not after.learned


@pytest.mark.parametrize(("name", "share"), [(KIND_NAMES[0], 0.20), (KIND_NAMES[-1], 0.74)])
def test_guesses_have_the_share_of_their_rung_and_are_never_right(name, share):
    guesses = 0
    for problem, document in solver_documents(2000, name):
        if len(document) == 2:
            guesses += 1
            assert read_output(written(document).removesuffix(EOS)).label != truth(problem)
    assert guesses / 2000 == pytest.approx(share, abs=0.04)


def test_rungs_rise_evenly():
    shares = [Flaws(0.1, 0.55).guess_share(name) for name in KIND_NAMES]
    assert shares == pytest.approx([0.1 + 0.05 * i for i in range(10)])


def test_shares_of_the_paths_that_call_the_tool():
    flaws = Flaws(0, 0, wrong_call=0.3, no_answer=0.1, second_call=0.2)
    calls, answered = [], 0
    for _, document in solver_documents(2000, flaws=flaws):
        calls.append(written(document).count("<python>"))
        answered += read_output(written(document).removesuffix(EOS)).status == "valid"
    assert set(calls) == {1, 2}
    assert calls.count(2) / 2000 == pytest.approx(0.2, abs=0.04)
    assert answered / 2000 == pytest.approx(0.9, abs=0.03)


def test_without_flaws_every_document_is_one_right_call():
    for problem, document in solver_documents(100, flaws=NO_FLAWS):
        assert len(document) == 4
        assert read_output(written(document).removesuffix(EOS)).label == truth(problem)


def test_no_demonstration_outside_the_grammar():
    with pytest.raises(ValueError, match="'Who\\?'"):
        solver_document(Random(0), "Who?", "", Flaws())


def test_curriculum_documents_read_as_candidates_with_the_shares_of_their_flaws():
    rng, readable, right = Random(3), 0, 0
    for _ in range(2000):
        problem = make_problem(rng)
        document = curriculum_document(rng, problem, "Write.\n", Flaws())
        candidate = read_candidate(written(document).removesuffix(EOS))
        if candidate.r_fmt:
            readable += 1
            assert candidate.problem == problem
            right += candidate.answer == truth(problem)
    assert readable / 2000 == pytest.approx(0.88, abs=0.03)
    assert right / readable == pytest.approx(0.5, abs=0.05)


class NoSums:
    """Excludes every problem of the kind 'sum', and counts the refusals."""

    def __init__(self):
        self.refused = 0

    def __contains__(self, problem):
        excluded = kind(problem) == "sum"
        self.refused += excluded
        return excluded


def test_the_warm_start_never_shows_an_excluded_problem():
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    class Recorder:
        """A tokenizer that remembers what it was given."""

        def __init__(self, tokenizer):
            self.tokenizer = tokenizer
            self.seen = []

        def encode(self, text, **options):
            self.seen.append(text)
            return self.tokenizer.encode(text, **options)

    torch.manual_seed(0)
    tokenizer = Recorder(train_tokenizer("Write.\n", PROMPT))
    config = Qwen3Config(
        vocab_size=len(tokenizer.tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
    )
    excluded = NoSums()
    warm_start(
        Qwen3ForCausalLM(config),
        tokenizer,
        Prompts("Write.\n", PROMPT),
        Recipe(steps=8, batch=32, learning_rate=1e-3),
        seed=0,
        excluded=excluded,
    )
    text = "".join(tokenizer.seen)
    assert excluded.refused > 10
    assert "What is" in text
    assert not re.search(r"What is \d+ \+", text)
