"""Development and held-out problems: fixed, balanced, and apart."""

from collections import Counter

import pytest

from training.algorithms.answers import canonical_label
from training.tiny_world.grammar import KIND_NAMES, kind, truth
from training.tiny_world.sets import SIZE, excluded_problems, problem_set


@pytest.mark.parametrize("split", ["development", "held_out"])
def test_a_set_is_full_distinct_balanced_and_right(split):
    problems = problem_set(split)
    assert len(problems) == len({p["problem"] for p in problems}) == SIZE
    assert len({p["id"] for p in problems}) == SIZE
    assert set(Counter(p["kind"] for p in problems).values()) == {SIZE // len(KIND_NAMES)}
    assert [p["kind"] for p in problems[: len(KIND_NAMES)]] == list(KIND_NAMES)
    for p in problems:
        assert p["kind"] == kind(p["problem"])
        assert p["answer"] == truth(p["problem"]) == canonical_label(p["answer"])


def test_the_sets_are_disjoint_and_both_are_excluded():
    development = {p["problem"] for p in problem_set("development")}
    held_out = {p["problem"] for p in problem_set("held_out")}
    assert not development & held_out
    assert excluded_problems() == development | held_out


def test_a_set_is_a_copy_that_a_caller_may_change():
    problem_set("held_out")[0]["answer"] = "changed"
    assert problem_set("held_out")[0]["answer"] != "changed"
