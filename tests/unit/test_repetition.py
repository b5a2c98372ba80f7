"""Near repetitions in a batch of problems (docs/method.md section 3)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.algorithms.repetition import bleu_distance, components

TEXTS = [
    "Find the sum of all positive divisors of 360.",
    "Find the sum of all positive divisors of 720.",
    "A fair coin is flipped ten times. What is the probability of exactly three heads?",
    "Compute 3 + 4.",
    "7",
    "7",
    "计算从一到一百的所有整数之和。",
    "What's 1,000 * 2.5 & why?   It isn't &quot;trivial&quot; - is it?",
    "",
]


def public_distance(a: str, b: str) -> float:
    bleu = pytest.importorskip("sacrebleu").BLEU(effective_order=True)
    there = bleu.sentence_score(a, [b]).score
    back = bleu.sentence_score(b, [a]).score
    return float(1 - (there + back) / 200)


def test_cached_counts_score_exactly_as_the_public_function() -> None:
    for a in TEXTS:
        for b in TEXTS:
            assert bleu_distance(a, b) == public_distance(a, b), (a, b)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cached_counts_agree_on_random_texts(data: st.DataObject) -> None:
    words = st.lists(
        st.sampled_from(["the", "sum", "of", "12", ",", "and", "it's", "x^2", ".", "(", "é"]),
        max_size=12,
    )
    a, b = (" ".join(data.draw(words)) for _ in range(2))
    assert bleu_distance(a, b) == public_distance(a, b)
    assert bleu_distance(a, b) == bleu_distance(b, a)


def test_distance_of_equal_and_of_unrelated_texts() -> None:
    assert bleu_distance(TEXTS[0], TEXTS[0]) == pytest.approx(0.0, abs=1e-12)
    assert bleu_distance("alpha beta", "gamma delta") == 1.0


def test_near_copies_join_and_the_rest_stand_alone() -> None:
    assert bleu_distance(TEXTS[0], TEXTS[1]) < 0.6 < bleu_distance(TEXTS[0], TEXTS[2])
    assert components(TEXTS[:4]) == [2, 2, 1, 1]


@pytest.mark.parametrize("text", ["7", "Compute 2+2.", "求解方程", "?", "\x00"])
def test_identical_texts_always_join(text: str) -> None:
    assert components([text, "Something else entirely, about circles.", text]) == [2, 1, 2]
    assert components([text, f" {text}\n"], threshold=0.0) == [2, 2]


def test_texts_that_are_absent_or_blank_stand_alone() -> None:
    assert components([None, None, "", "", " \n", " \n"]) == [1] * 6


def test_components_are_transitive() -> None:
    words = [f"w{i}" for i in range(24)]
    chain = [" ".join(words[start : start + 12]) for start in (0, 5, 10)]
    assert bleu_distance(chain[0], chain[2]) > 0.6
    assert bleu_distance(chain[0], chain[1]) < 0.6
    assert bleu_distance(chain[1], chain[2]) < 0.6
    assert components(chain) == [3, 3, 3]


def test_the_threshold_is_exclusive() -> None:
    distance = bleu_distance(TEXTS[0], TEXTS[1])
    assert components(TEXTS[:2], threshold=distance) == [1, 1]
    assert components(TEXTS[:2], threshold=distance + 1e-9) == [2, 2]


def test_an_empty_batch_has_no_components() -> None:
    assert components([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_components_agree_with_a_plain_search(seed: int) -> None:
    rng = random.Random(seed)
    texts: list[str | None] = [
        None if rng.random() < 0.1 else " ".join(rng.choices("abcdefgh", k=rng.randint(1, 8)))
        for _ in range(16)
    ]
    joined = [
        [
            i == j or (a is not None and b is not None and (a == b or public_distance(a, b) < 0.6))
            for j, b in enumerate(texts)
        ]
        for i, a in enumerate(texts)
    ]
    sizes = []
    for i in range(len(texts)):
        found, todo = {i}, [i]
        while todo:
            k = todo.pop()
            new = {j for j in range(len(texts)) if joined[k][j]} - found
            found |= new
            todo += new
        sizes.append(len(found))
    assert components(texts) == sizes
