"""Counting answers and normalising rewards (docs/method.md sections 2 and 4)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithms.group_stats import normalise
from training.algorithms.voting import vote

LABELS = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=12)
REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=12)


def test_unique_mode_resolves_and_invalid_answers_stay_in_the_denominator() -> None:
    v = vote(["5", "5", None, "7", None, "5", None, None])
    assert (v.counts, v.size, v.label, v.top) == ({"5": 3, "7": 1}, 8, "5", 3)
    assert v.resolved
    assert v.agreement == v.p_max == 3 / 8


def test_a_tie_at_the_top_is_unresolved_but_keeps_its_count() -> None:
    v = vote(["5", "5", "7", "7", "1", None, None, None])
    assert v.label is None
    assert not v.resolved
    assert (v.top, v.p_max, v.agreement) == (2, 0.25, 0.0)


def test_a_tie_below_the_top_does_not_matter() -> None:
    assert vote(["5", "5", "7", "1"]).label == "5"


def test_no_valid_answer_is_unresolved_with_zero_count() -> None:
    v = vote([None] * 8)
    assert (v.label, v.top, v.p_max, v.agreement, v.counts) == (None, 0, 0.0, 0.0, {})


def test_a_single_valid_answer_resolves_the_group() -> None:
    assert vote([None] * 7 + ["2"]).label == "2"


def test_empty_groups_and_empty_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one trajectory"):
        vote([])
    with pytest.raises(ValueError, match="empty label"):
        vote(["1", ""])


@given(LABELS)
def test_the_vote_matches_a_plain_count_and_ignores_order(labels: list[str | None]) -> None:
    v = vote(labels)
    tally = {label: labels.count(label) for label in labels if label is not None}
    winners = [label for label in tally if tally[label] == max(tally.values())]
    assert v.label == (winners[0] if len(winners) == 1 else None)
    assert v.counts == tally
    assert v == vote(labels[::-1])


def test_normalise_goldens_for_both_deviations() -> None:
    assert normalise([1, 1, 0, 0], "population", eps=0.0) == [1.0, 1.0, -1.0, -1.0]
    sample = normalise([1, 1, 0, 0], "sample", eps=0.0)
    assert sample == pytest.approx([math.sqrt(3) / 2] * 2 + [-math.sqrt(3) / 2] * 2, abs=1e-15)


def test_epsilon_is_added_to_the_deviation() -> None:
    assert normalise([1, 0], "population", eps=0.5) == [0.5, -0.5]
    assert normalise([1, 0], "population")[0] == pytest.approx(0.5 / (0.5 + 1e-6), rel=1e-15)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e300, -7.3])
def test_equal_values_give_exact_zeros(value: float) -> None:
    assert normalise([value] * 7) == [0.0] * 7


def test_a_single_value_is_a_unanimous_group() -> None:
    assert normalise([3.0], "sample") == normalise([3.0], "population") == [0.0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="empty group"):
        normalise([])
    with pytest.raises(ValueError, match="not finite"):
        normalise([1.0, float("nan")])
    with pytest.raises(ValueError, match="'sample' or 'population', got 'unbiased'"):
        normalise([1.0, 2.0], "unbiased")  # type: ignore[arg-type]


@given(REWARDS, st.sampled_from(["sample", "population"]))
def test_advantages_sum_to_zero_and_keep_the_order(values: list[float], std: str) -> None:
    advantages = normalise(values, std)  # type: ignore[arg-type]
    assert abs(math.fsum(advantages)) < 1e-6
    for i in range(len(values)):
        for j in range(len(values)):
            if values[i] < values[j]:
                assert advantages[i] <= advantages[j]


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=12), st.integers(-100, 100))
def test_advantages_do_not_depend_on_the_level(values: list[int], shift: int) -> None:
    moved = normalise([v + shift for v in values])
    assert moved == pytest.approx(normalise(values), abs=1e-9)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=16))
def test_deviation_matches_numpy(values: list[int]) -> None:
    numpy = pytest.importorskip("numpy")
    for std, ddof in (("sample", 1), ("population", 0)):
        array = numpy.asarray(values, dtype=float)
        expected = (array - array.mean()) / (array.std(ddof=ddof) + 1e-6)
        assert normalise(values, std) == pytest.approx(expected.tolist(), abs=1e-12)  # type: ignore[arg-type]
