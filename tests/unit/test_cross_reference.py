"""The cross-reference advantage: goldens and the paper's boundary cases (method section 4)."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithms.cross_reference import (
    CrossReference,
    classify,
    cross_reference_advantage,
    indicators,
    structure,
)
from training.algorithms.group_stats import Deviation
from training.algorithms.voting import vote

Labels = list[str | None]
DEVIATIONS: list[Deviation] = ["sample", "population"]


def group(word: str) -> Labels:
    """One letter an answer; a dot is an invalid one."""
    return [None if letter == "." else letter for letter in word]


def compute(
    current: str, anchor: str, alpha: float = 0.6, std: Deviation = "sample"
) -> CrossReference:
    labels = group(current)
    return cross_reference_advantage(labels, vote(labels), vote(group(anchor)), alpha, std)


def test_published_vector_with_a_third_class() -> None:
    result = compute("AAAABBBC", "BBBBBBBB", std="population")
    assert result.r_cur == [1, 1, 1, 1, 0, 0, 0, 0]
    assert result.r_anc == [0, 0, 0, 0, 1, 1, 1, 0]
    assert result.a_cur == pytest.approx([1.0] * 4 + [-1.0] * 4, abs=5e-6)
    assert result.a_hist == pytest.approx([0.944] * 4 + [-1.214] * 3 + [-0.135], abs=5e-4)
    assert result.advantage == pytest.approx([0.966] * 4 + [-1.128] * 3 + [-0.481], abs=5e-4)


def test_the_same_vector_by_hand() -> None:
    # r_cur - r_anc = (1 x4, -1 x3, 0): mean 1/8, population variance 7/8 - 1/64 = 55/64.
    result = compute("AAAABBBC", "BBBBBBBB", std="population")
    deviation = math.sqrt(55) / 8 + 1e-6
    assert result.a_hist is not None
    assert result.a_hist[0] == pytest.approx((7 / 8) / deviation, rel=1e-14)
    assert result.a_hist[4] == pytest.approx((-9 / 8) / deviation, rel=1e-14)
    assert result.a_hist[7] == pytest.approx((-1 / 8) / deviation, rel=1e-14)


def test_sample_deviation_rescales_by_the_group_size() -> None:
    sample, population = (
        compute("AAAABBBC", "B" * 8),
        compute("AAAABBBC", "B" * 8, 0.6, "population"),
    )
    assert sample.a_cur[0] == pytest.approx(population.a_cur[0] * math.sqrt(7 / 8), rel=1e-5)


@pytest.mark.parametrize("std", DEVIATIONS)
@pytest.mark.parametrize("current", ["AAAAABBC", "AAA.....", "AA......"])
def test_same_majorities_have_no_historical_term(current: str, std: Deviation) -> None:
    result = compute(current, "AAAAAABC", std=std)
    assert result.a_hist == [0.0] * 8
    assert result.advantage == [0.4 * a for a in result.a_cur]
    assert structure(group(current), "A", "A") == "zero"


@pytest.mark.parametrize("std", DEVIATIONS)
@pytest.mark.parametrize("anchor", ["AAAAAAAA", "BBBBBBBB"])
def test_unanimous_groups_have_no_advantage_whatever_the_anchor(
    anchor: str, std: Deviation
) -> None:
    result = compute("AAAAAAAA", anchor, std=std)
    assert result.a_cur == result.a_hist == result.advantage == [0.0] * 8
    assert structure(group("AAAAAAAA"), "A", anchor[0]) == "zero"


@pytest.mark.parametrize("std", DEVIATIONS)
@pytest.mark.parametrize("current", ["AAAAABBB", "AAAAAAAB"])
def test_two_classes_only_give_a_positive_multiple(current: str, std: Deviation) -> None:
    result = compute(current, "BBBBBBBB", std=std)
    assert result.a_hist == pytest.approx(result.a_cur, abs=1e-5)
    assert structure(group(current), "A", "B") == "collinear"


@pytest.mark.parametrize("std", DEVIATIONS)
@pytest.mark.parametrize("current", ["AAAABBCC", "AAAAA...", "AAAAABC."])
def test_an_absent_anchor_label_repeats_the_current_advantage(current: str, std: Deviation) -> None:
    result = compute(current, "ZZZZZZZZ", std=std)
    assert result.a_hist == result.a_cur
    assert structure(group(current), "A", "Z") == "collinear"


@pytest.mark.parametrize("current", ["AAAABBBC", "AAAABBB.", "AAA.B..C"])
def test_a_third_class_tells_the_anchor_label_from_the_rest(current: str) -> None:
    result = compute(current, "BBBBBBBB")
    labels = group(current)
    by_class: dict[str, list[float]] = {"A": [], "B": [], "other": []}
    for label, advantage in zip(labels, result.advantage, strict=True):
        by_class[label if label == "A" or label == "B" else "other"].append(advantage)
    assert max(by_class["B"]) < min(by_class["other"]) < min(by_class["A"])
    assert structure(labels, "A", "B") == "non_collinear"


def test_historical_term_off_uses_the_current_advantage_whole() -> None:
    labels = group("AAAABBBC")
    result = cross_reference_advantage(labels, vote(labels), None, alpha=0.6)
    assert result.advantage == result.a_cur
    assert result.r_anc is None
    assert result.a_hist is None


def test_scaled_control_shrinks_every_advantage() -> None:
    labels = group("AAAABBBC")
    plain = cross_reference_advantage(labels, vote(labels), None)
    scaled = cross_reference_advantage(labels, vote(labels), None, scale=0.4)
    assert scaled.advantage == [0.4 * a for a in plain.advantage]
    assert scaled.a_cur == plain.a_cur


@pytest.mark.parametrize(("alpha", "which"), [(0.0, "a_cur"), (1.0, "a_hist")])
def test_alpha_at_its_ends_selects_one_term(alpha: float, which: str) -> None:
    result = compute("AAAABBBC", "BBBBBBBB", alpha)
    assert result.advantage == getattr(result, which)


def test_invalid_answers_never_earn_an_indicator() -> None:
    assert indicators([None, "A", None], "A") == [0, 1, 0]


def test_unresolved_groups_wrong_votes_and_bad_alpha_are_refused() -> None:
    labels = group("AABBCC")
    with pytest.raises(ValueError, match="unresolved"):
        cross_reference_advantage(labels, vote(labels), None)
    with pytest.raises(ValueError, match="unresolved"):
        cross_reference_advantage(group("AAB"), vote(group("AAB")), vote(group("AB.")))
    with pytest.raises(ValueError, match="does not belong"):
        cross_reference_advantage(group("AAB"), vote(group("AAAB")), None)
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got 1.5"):
        compute("AAB", "AAB", 1.5)


@pytest.mark.parametrize(
    ("current", "historical", "expected"),
    [
        ([1, 1, 0, 0], [-1, -1, 0, 0], "non_collinear"),  # negative scale
        ([1, 1, 1, 1], [1, 0, 0, 0], "non_collinear"),  # zero current vector
        ([1, 1, 0, 0], [0, 0, 0, 0], "zero"),
        ([1, 1, 0, 0], [5, 5, 5, 5], "zero"),
        ([1, 1, 0, 0], [3, 3, 1, 1], "collinear"),
        ([1, 1, 0, 0], [1, 0, 1, 0], "non_collinear"),  # orthogonal
        ([1, 0, 0], [1, 0, -1], "non_collinear"),
        ([10**40, 0, 0], [10**40 + 1, 0, 0], "collinear"),  # far beyond floats
        ([10**40, 0, 1], [10**40, 0, 0], "non_collinear"),
    ],
)
def test_classifier_on_its_own(current: list[int], historical: list[int], expected: str) -> None:
    assert classify(current, historical) == expected


def test_classifier_refuses_vectors_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="one length, got 2 and 3"):
        classify([1, 0], [1, 0, 0])
    with pytest.raises(ValueError, match="one length, got 0 and 0"):
        classify([], [])


def test_structure_of_every_resolved_pair_of_five() -> None:
    """The closed statement of section 4, checked on all groups of five over four classes."""
    seen = set()
    for word in itertools.product("ABC.", repeat=5):
        labels = group("".join(word))
        majority = vote(labels).label
        if majority is None:
            continue
        for anchor in "ABCZ":
            differ, unanimous = anchor != majority, set(labels) == {majority}
            absent = anchor not in labels
            third = any(label not in (majority, anchor) for label in labels)
            kind = structure(labels, majority, anchor)
            seen.add(kind)
            assert (kind == "zero") == (not differ or unanimous)
            assert (kind == "collinear") == (differ and not unanimous and (absent or not third))
    assert seen == {"zero", "collinear", "non_collinear"}


@given(
    st.lists(st.sampled_from(["A", "B", "C", None]), min_size=2, max_size=10),
    st.sampled_from(["A", "B", "C", "Z"]),
    st.floats(0, 1),
    st.sampled_from(DEVIATIONS),
)
def test_mixed_advantages_sum_to_zero_and_agree_with_a_plain_loop(
    labels: Labels, anchor: str, alpha: float, std: Deviation
) -> None:
    current = vote(labels)
    if current.label is None:
        return
    result = cross_reference_advantage(labels, current, vote([anchor]), alpha, std)
    assert abs(math.fsum(result.advantage)) < 1e-9
    assert result.advantage == pytest.approx(plain_loop(labels, current.label, anchor, alpha, std))


def plain_loop(
    labels: Labels, majority: str, anchor: str, alpha: float, std: Deviation
) -> list[float]:
    n = len(labels)
    cur = [1.0 if label == majority else 0.0 for label in labels]
    diff = [c - (1.0 if label == anchor else 0.0) for c, label in zip(cur, labels, strict=True)]
    mixed = []
    for i in range(n):
        total = 0.0
        for share, values in ((1 - alpha, cur), (alpha, diff)):
            mean = sum(values) / n
            squares = sum((v - mean) ** 2 for v in values)
            deviation = math.sqrt(squares / (n - 1 if std == "sample" else n))
            total += share * (values[i] - mean) / (deviation + 1e-6)
        mixed.append(total)
    return mixed
