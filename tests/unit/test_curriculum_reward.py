"""The Curriculum's reward, term by term and as a batch (docs/method.md section 3)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithms import curriculum_reward
from training.algorithms.candidate import Candidate, read_candidate
from training.algorithms.curriculum_reward import (
    Rollouts,
    compose,
    r_ref,
    r_tool,
    r_unc,
    score_batch,
)
from training.algorithms.group_stats import normalise
from training.algorithms.voting import Vote, vote
from training.errors import NumericError


def votes(word: str) -> Vote:
    """One letter an answer; a dot is an invalid one."""
    return vote([None if letter == "." else letter for letter in word])


def valid(problem: str) -> Candidate:
    return Candidate(problem, "1", 1, "")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("AAAAAAAA", 0.0),
        ("........", 0.0),
        ("AAAABBCC", 1.0),
        ("AAAABBBB", 1.0),  # a tie keeps its uncertainty
        ("AABBCCDD", 0.5),
        ("A.......", 0.25),
        ("AAAAAAA.", 0.25),
    ],
)
def test_uncertainty(group: str, expected: float) -> None:
    assert r_unc(votes(group)) == expected


def test_tool_use_is_capped_a_trajectory_and_not_a_group() -> None:
    assert r_tool([0, 1, 4, 9]) == (0 + 1 + 4 + 4) / 4
    assert r_tool([9, 9], tool_cap=2) == 2.0
    for bad in ([], [1, -1]):
        with pytest.raises(ValueError, match="tool calls must be counts"):
            r_tool(bad)


@pytest.mark.parametrize(
    ("current", "anchor", "expected"),
    [
        ("AAAAAAB.", "BBBB....", 0.25),  # each group's own majority, here different labels
        ("AAAA....", "AAAAAAAA", 0.0),
        ("AAAABBBB", "AAAA....", 0.0),  # unresolved current
        ("AAAAAAAA", "AAAABBBB", 0.0),  # unresolved anchor
        ("AAAAAAAA", "........", 0.0),
    ],
)
def test_reference_gap(current: str, anchor: str, expected: float) -> None:
    assert r_ref(votes(current), votes(anchor)) == expected


def test_reference_gap_without_an_anchor_is_zero_and_sizes_must_agree() -> None:
    assert r_ref(votes("AAAA"), None) == 0.0
    with pytest.raises(ValueError, match="groups of 4 and 3"):
        r_ref(votes("AAAA"), votes("AAA"))


def test_complete_reward_by_hand() -> None:
    # .5 + .25 * 2 - .2 * .25 + .4 * .125
    assert compose(1, 0.5, 2.0, 0.25, 0.125) == pytest.approx(1.0)
    assert compose(0, 0.5, 2.0, 0.25, 0.125) == 0.0
    assert compose(1, 0.0, 0.0, 1.0, 0.0) == 0.0
    weights = {"w_unc": 2.0, "w_tool": 0.0, "w_rep": 1.0, "lambda_ref": 0.0}
    assert compose(1, 0.5, 2.0, 0.25, 0.125, **weights) == pytest.approx(0.75)


def test_batch_by_hand() -> None:
    candidates = [
        valid("How many primes lie between ten and fifty?"),
        valid("How many primes lie between ten and fifty?"),
        valid("A train leaves at noon; when does it arrive?"),
        Candidate(None, None, 0, "no 'Problem:' part"),
    ]
    rollouts = [
        Rollouts(votes("AAAB"), votes("AABC"), [1, 0, 5, 0]),
        Rollouts(votes("AABB"), votes("AAAA"), [0, 0, 0, 0]),
        Rollouts(votes("AAAA"), None, [0, 0, 0, 0]),
        None,
    ]
    scores = score_batch(candidates, rollouts)
    assert [s.r_fmt for s in scores] == [1, 1, 1, 0]
    assert [s.r_unc for s in scores] == [0.5, 1.0, 0.0, 0.0]
    assert [s.r_tool for s in scores] == [1.25, 0.0, 0.0, 0.0]
    assert [s.r_rep for s in scores] == [0.5, 0.5, 0.25, 0.25]
    assert [s.r_ref for s in scores] == [0.25, 0.0, 0.0, 0.0]
    rewards = [0.5 + 0.3125 - 0.1 + 0.1, 0.9, 0.0, 0.0]
    assert [s.r_c for s in scores] == pytest.approx(rewards)
    assert [s.advantage for s in scores] == pytest.approx(normalise(rewards))


def test_format_invalid_candidates_count_in_the_batch_and_in_its_repetitions() -> None:
    text = "How many primes lie between ten and fifty?"
    candidates = [valid(text), Candidate(text, None, 0, "no 'Answer:' part after the problem")]
    scores = score_batch(candidates, [Rollouts(votes("AAB"), None, [0, 0, 0]), None])
    assert [s.r_rep for s in scores] == [1.0, 1.0]
    assert scores[1].r_c == 0.0
    assert scores[0].advantage == -scores[1].advantage > 0


def test_a_batch_of_equal_rewards_has_no_advantage() -> None:
    scores = score_batch([Candidate(None, None, 0, "")] * 5, [None] * 5)
    assert [s.advantage for s in scores] == [0.0] * 5


def test_the_weight_of_the_reference_term_switches_it_off() -> None:
    rollouts = [Rollouts(votes("AAAB"), votes("AABC"), [0, 0, 0, 0])]
    on, off = (score_batch([valid("x")], rollouts, lambda_ref=lam)[0] for lam in (0.4, 0.0))
    assert on.r_ref == off.r_ref == 0.25
    assert on.r_c - off.r_c == pytest.approx(0.1)


def test_bad_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="2 candidates but 1 rollout entries"):
        score_batch([valid("x"), valid("y")], [None])
    with pytest.raises(ValueError, match="candidate 0 is format-valid but has no rollouts"):
        score_batch([valid("x")], [None])
    with pytest.raises(ValueError, match="candidate 0 has 2 tool-call counts for a group of 3"):
        score_batch([valid("x")], [Rollouts(votes("AAB"), None, [0, 0])])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_term_that_is_not_finite_is_refused_and_never_a_reward_of_zero(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(curriculum_reward, "r_unc", lambda _vote: value)
    rollouts = [Rollouts(votes("AAB"), None, [0, 0, 0])]
    with pytest.raises(NumericError, match=rf"reward of candidate 0 .*'r_unc': {value}"):
        score_batch([valid("x")], rollouts)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one small sum", "a much longer tale of two trains", "prime"]),
            st.lists(st.sampled_from(["1", "2", None]), min_size=4, max_size=4),
            st.lists(st.sampled_from(["1", "2", None]), min_size=4, max_size=4),
            st.lists(st.integers(0, 9), min_size=4, max_size=4),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_rewards_stay_in_their_range_and_advantages_sum_to_zero(batch) -> None:  # type: ignore[no-untyped-def]
    scores = score_batch(
        [valid(text) for text, *_ in batch],
        [Rollouts(vote(cur), vote(anc), calls) for _, cur, anc, calls in batch],
    )
    for s in scores:
        assert 0 <= s.r_unc <= 1
        assert 0 <= s.r_tool <= 4
        assert 1 / len(batch) <= s.r_rep <= 1
        assert 0 <= s.r_ref <= 1
        assert 0 <= s.r_c <= 1 + 0.25 * 4 + 0.4
    assert abs(math.fsum(s.advantage for s in scores)) < 1e-9


@pytest.mark.parametrize(
    ("text", "problem", "answer"),
    [
        ("Problem: What is 2+3?\nAnswer: 5", "What is 2+3?", "5"),
        ("Problem: What is 2+3? Answer: 5", "What is 2+3?", "5"),
        ("Here it is.\n\nProblem:\nWhat is 1/2?\n\nAnswer:\n0.5\n", "What is 1/2?", "1/2"),
        ("**Problem:** What is 2+3?\n**Answer:** 5", "What is 2+3?", "5"),
        ("## Problem: Two lines.\nHow many?\n## Answer: 2", "Two lines.\nHow many?", "2"),
        ("Problem: Add.\r\nAnswer: 7\r\n", "Add.", "7"),
        ("Problem: Give it as 'Answer: n'. 2+2?\nAnswer: 4", "Give it as 'Answer: n'. 2+2?", "4"),
        ("Problem: One?\nAnswer: 1\nProblem: Two?\nAnswer: 2", "One?", "1"),
        ("Problem: One?\nAnswer: 1\nAnswer: 1.0", "One?", "1"),
        ("Problem: One?\nAnswer: 1\nBecause it is so.", "One?", "1"),
        ("Problem: One?\nFinal Answer: 1", "One?", "1"),
        # what the Executor would see of its answer ends the problem
        ("Problem: 6*7? Answer: 42\n\nAnswer: 42", "6*7?", "42"),
        ("Problem: 6*7? Answer: 42\nBecause.\nFinal Answer: 42", "6*7?", "42"),
        ("Problem: One? Answer: 1\nProblem: Two?\nAnswer: 2", "One?", "1"),
        ("Problem: How many? (Answer: 5)\nAnswer: 5", "How many?", "5"),
        ("Problem: How many? (final answer: 5).\nAnswer: 5", "How many?", "5"),
        ("Problem: How many? Answer: $ 5 $\nAnswer: 5", "How many?", "5"),
        ("Problem: How many? Answer: 5, as shown\nAnswer: 5", "How many?", "5"),
        ("Problem: How many? Answer: 5!", "How many?", "120"),
        ("Problem: Each answer: 5 points. Of 3?\nAnswer: 15", "Each answer: 5 points. Of 3?", "15"),
    ],
)
def test_candidates_that_pass_the_format_gate(text: str, problem: str, answer: str) -> None:
    candidate = read_candidate(text)
    assert (candidate.problem, candidate.answer, candidate.r_fmt) == (problem, answer, 1)


@pytest.mark.parametrize(
    ("text", "problem", "reason"),
    [
        ("", None, "no 'Problem:' part"),
        ("Answer: 5", None, "no 'Problem:' part"),
        ("Question: What is 2+3?\nAnswer: 5", None, "no 'Problem:' part"),
        ("Answer: 5\nProblem: What is 2+3?", "What is 2+3?", "no 'Answer:' part"),
        ("Problem: What is 2+3?", "What is 2+3?", "no 'Answer:' part"),
        ("Problem:\nAnswer: 5", None, "the 'Problem:' part is empty"),
        ("Problem: What is 2+3?\nAnswer:", "What is 2+3?", "has no label"),
        ("Problem: What is 2+3?\nAnswer:  \n \n", "What is 2+3?", "has no label"),
        ("Problem: What is 2+3?\nAnswer: unknown", "What is 2+3?", "has no label"),
        ("Problem: One?\nAnswer: 1\nAnswer: 2", "One?", "two different"),
        ("Problem: One? Answer: 1\nAnswer: 2", "One?", "two different"),
        ("Problem: One?\nAnswer: 1\nAnswer: none", "One?", "two different"),
    ],
)
def test_candidates_that_fail_the_format_gate(text: str, problem: str | None, reason: str) -> None:
    candidate = read_candidate(text)
    assert (candidate.r_fmt, candidate.answer, candidate.problem) == (0, None, problem)
    assert reason in candidate.reason


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20))
def test_reading_never_raises_and_a_valid_candidate_has_both_parts(a: str, b: str, c: str) -> None:
    candidate = read_candidate(f"{a}Problem:{b}\nAnswer:{c}")
    if candidate.r_fmt:
        assert candidate.problem
        assert candidate.answer


def test_many_answer_parts_are_not_all_calculated() -> None:
    parts = [f"Answer: 1.1^{{{9000 - i}}}\n" for i in range(200)]
    assert read_candidate("Problem: a\n" + parts[0] * 200).r_fmt == 1
    assert "over 8 different" in read_candidate("Problem: a\n" + "".join(parts)).reason
