"""The problems of the tiny world: what is in the grammar, and that answers are exact."""

import contextlib
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.tiny_world.analysis import in_grammar_share, overlap
from training.tiny_world.expressions import code_for, evaluate
from training.tiny_world.grammar import (
    KIND_NAMES,
    kind,
    make_problem,
    right_expression,
    truth,
    wrong_expressions,
)

NUMBER = st.integers(0, 999_999)


def python_prints(expression: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code_for(expression), {})
    return out.getvalue().removesuffix("\n")


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_generated_problem_is_of_its_kind_and_its_expressions_print_what_python_prints(name):
    rng = random.Random(name)
    for _ in range(100):
        problem = make_problem(rng, name)
        right, wrong = right_expression(problem), wrong_expressions(problem)
        assert kind(problem) == name
        assert truth(problem) == python_prints(right)
        assert len(wrong) == 2
        for expression in wrong:
            assert evaluate(expression) == python_prints(expression)


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        ("What is 12 + 30?", "42"),
        ("What is 12 - 30?", "-18"),
        ("What is 7 * 6?", "42"),
        ("Compute 7 - 2 * 3.", "1"),
        ("Compute (7 - 2) * 3.", "15"),
        ("Find the remainder of 100 divided by 7.", "2"),
        ("Find the greatest common divisor of 12 and 18.", "6"),
        ("Add up all multiples of 3 from 3 to 10.", "18"),
        ("Ava has 5 keys and gets 2 bags of 10. How many keys are there now?", "25"),
        ("Max fills 3 boxes with 4 nuts each and loses 5. How many nuts are left?", "7"),
        ("Add up all multiples of 1 from 1 to 999999.", "499999500000"),
        ("Find the greatest common divisor of 0 and 0.", "0"),
    ],
)
def test_answers_by_hand(problem, answer):
    assert truth(problem) == answer


def test_every_kind_is_drawn():
    rng = random.Random(0)
    assert {kind(make_problem(rng)) for _ in range(300)} == set(KIND_NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is 1 + 2",
        "What is 1 + 2? ",
        "what is 1 + 2?",
        "What is 01 + 2?",
        "What is -1 + 2?",
        "What is 1234567 + 2?",
        "What is １ + 2?",
        "What is 1 + 2?\n",
        "Compute 1 / 2 * 3.",
        "Ava has 5 keys and gets 2 bags of 10. How many cups are there now?",
        "Bob has 5 keys and gets 2 bags of 10. How many keys are there now?",
        "What is 1 + 2? What is 1 + 2?",
    ],
)
def test_near_misses_are_outside_the_grammar(text):
    assert kind(text) is None
    assert truth(text) is None
    assert right_expression(text) is None
    assert wrong_expressions(text) == ()


@pytest.mark.parametrize(
    "text", ["Find the remainder of 5 divided by 0.", "Add up all multiples of 0 from 0 to 9."]
)
def test_a_problem_without_an_answer_has_a_kind_but_no_truth(text):
    assert kind(text) is not None
    assert truth(text) is None


@given(a=NUMBER, b=NUMBER, c=NUMBER, sign=st.sampled_from("+-"))
def test_truth_is_exact_for_all_numbers(a, b, c, sign):
    signed = b if sign == "+" else -b
    assert truth(f"What is {a} {sign} {b}?") == str(a + signed)
    assert truth(f"Compute {a} {sign} {b} * {c}.") == str(a + signed * c)
    assert truth(f"Compute ({a} {sign} {b}) * {c}.") == str((a + signed) * c)


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "2**9", "1/2", "open('x')", "a", "1.5", "sum([1])", "-1"]
)
def test_what_the_grammar_does_not_write_is_never_evaluated(expression):
    with pytest.raises(ValueError, match="tiny world cannot evaluate"):
        evaluate(expression)


def test_shares_over_the_tasks_of_a_curriculum():
    known, other = "What is 1 + 2?", "Which is 1 + 2?"
    tasks = [known, known, "What is 3 - 2?", other]
    assert in_grammar_share(tasks) == 0.75
    assert overlap(tasks, {known, "What is 9 + 9?"}) == 2
    assert in_grammar_share([]) == 0.0
