"""The tiny tokenizer: lossless, digit by digit, and as rollouts encode."""

import random

import pytest
from transformers import AutoTokenizer

from training.rollout.observation import ObservationEncoder
from training.tiny_world.documents import Flaws, curriculum_document, solver_document
from training.tiny_world.grammar import make_problem
from training.tiny_world.tokenizer import TAGS, encode_document, train_tokenizer

CURRICULUM, EXECUTOR = "Write a problem.\n", "Solve this.\nProblem: {problem}\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(CURRICULUM, EXECUTOR).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def documents(count):
    rng, flaws = random.Random(11), Flaws()
    for _ in range(count):
        problem = make_problem(rng)
        yield solver_document(rng, problem, EXECUTOR.replace("{problem}", problem), flaws)
        yield curriculum_document(rng, problem, CURRICULUM, flaws)


def test_equal_templates_give_equal_tokenizers(tmp_path):
    for name in ("a", "b"):
        train_tokenizer(CURRICULUM, EXECUTOR).save_pretrained(tmp_path / name)
    first, second = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("a", "b"))
    assert first == second


def test_documents_survive_a_round_trip(tokenizer):
    for document in documents(200):
        ids, learned = encode_document(tokenizer, document)
        assert len(ids) == len(learned)
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == "".join(span.text for span in document)
        own = [i for i, mine in zip(ids, learned, strict=True) if mine]
        assert tokenizer.decode(own) == "".join(s.text for s in document if s.learned)


def test_all_printable_text_survives_and_the_rest_is_unknown(tokenizer):
    printable = "".join(map(chr, range(32, 127))) + "\n \n\n  x"
    assert tokenizer.decode(tokenizer.encode(printable)) == printable
    assert tokenizer.encode("é") == [tokenizer.unk_token_id] * 2


def test_digits_are_single_and_tags_are_one_token_that_decoding_keeps(tokenizer):
    assert len(tokenizer.encode("20384")) == 5
    for tag in TAGS:
        assert len(tokenizer.encode(tag)) == 1
        assert tokenizer.decode(tokenizer.encode(tag), skip_special_tokens=True) == tag
    assert tokenizer.encode("<eos>") == [tokenizer.eos_token_id]
    assert tokenizer.decode([tokenizer.eos_token_id], skip_special_tokens=True) == ""


def test_observations_are_encoded_as_a_rollout_encodes_them(tokenizer):
    encoder = ObservationEncoder(tokenizer, 40)
    seen = 0
    for document in documents(100):
        for span in document:
            if span.text.startswith("\n<output>"):
                printed = span.text.removeprefix("\n<output>").removesuffix("</output>\n")
                ids = tokenizer.encode(span.text, add_special_tokens=False)
                assert encoder.encode(printed + "\n") == ids
                seen += 1
    assert seen > 30


def test_the_vocabulary_is_bounded(tokenizer):
    assert len(tokenizer) <= 320
    assert len(train_tokenizer(CURRICULUM, EXECUTOR, vocabulary=200)) == 200
