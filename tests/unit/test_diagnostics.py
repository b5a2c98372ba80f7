"""What is measured about a run (docs/method.md section 6)."""

import itertools
from fractions import Fraction
from math import comb

import pytest

from training.algorithms.adpo import weight
from training.algorithms.cross_reference import cross_reference_advantage
from training.algorithms.diagnostics import (
    EvolutionPoint,
    distinct_share,
    evolution_point,
    positive_gap_share,
    sample_tasks,
    top_answer_share,
    unresolved_share,
    v_adv,
)
from training.algorithms.structure_table import MatchedGroups, StructureRow, structure_table
from training.algorithms.voting import Vote, vote


def votes(word: str) -> Vote:
    return vote([None if letter == "." else letter for letter in word])


def test_v_adv_is_the_mean_population_variance_with_unresolved_groups_as_zero() -> None:
    assert v_adv([[1.0, -1.0], None, [0.0, 0.0], [3.0, 1.0]]) == pytest.approx((1 + 1) / 4)


def test_v_adv_ignores_the_level_of_a_group() -> None:
    assert v_adv([[101.0, 99.0]]) == pytest.approx(1.0)


def test_v_adv_of_the_same_majority_is_bounded_by_alpha() -> None:
    """(1 - alpha)^2 (G - 1) / G: no group with equal majorities can exceed it."""
    largest = 0.0
    for count in range(1, 9):
        labels = ["A"] * count + [f"x{i}" for i in range(8 - count)]
        current = vote(labels)
        if current.label != "A":
            continue
        result = cross_reference_advantage(labels, current, votes("AAAAAAAA"), 0.6)
        scaled = [weight(current.agreement) * a for a in result.advantage]
        largest = max(largest, v_adv([scaled]) or 0.0)
    assert 0.1 < largest <= 0.4**2 * 7 / 8


def test_positive_gap_counts_only_resolved_pairs_over_all_candidates() -> None:
    pairs = [
        (votes("AAAB"), votes("AABC")),  # 3/4 > 2/4
        (votes("AABC"), votes("AAAB")),
        (votes("AABC"), votes("BBCA")),  # equal, whatever the labels
        (votes("AAAA"), votes("AABB")),  # unresolved reference
        None,  # format-invalid
    ]
    assert positive_gap_share(pairs) == 1 / 5


def test_exchangeable_groups_cannot_reach_half() -> None:
    """Two independent groups of one policy at G = 8: at most 7/16 positive gaps.

    P(gap > 0) = (1 - P(equal)) / 2 for exchangeable groups; with eight possible agreements
    P(equal) is at least 1/8. Enumerated for policies that answer rightly with probability p.
    """
    best = Fraction(0)
    for p in (Fraction(k, 20) for k in range(1, 20)):
        pmf: dict[int, Fraction] = {}
        for right in range(9):
            # Wrong answers are all different, so only `right` or a lone answer can be the mode.
            v = vote(["A"] * right + [f"w{i}" for i in range(8 - right)])
            chance = comb(8, right) * p**right * (1 - p) ** (8 - right)
            key = v.top if v.resolved else 0
            pmf[key] = pmf.get(key, Fraction(0)) + chance
        positive = sum(
            (a * b for x, a in pmf.items() for y, b in pmf.items() if x > y > 0), Fraction(0)
        )
        best = max(best, positive)
    assert Fraction(1, 3) < best <= Fraction(7, 16)


def test_shares() -> None:
    assert top_answer_share(["5", "5", None, "7"]) == 2 / 3
    assert distinct_share(["a  b", "a b", None, "c"]) == 2 / 3
    assert unresolved_share([votes("AB"), votes("AA"), votes(".."), votes("AAB")]) == 0.5


@pytest.mark.parametrize(
    "function",
    [v_adv, positive_gap_share, unresolved_share, top_answer_share, distinct_share],
)
def test_a_mean_over_nothing_is_none(function) -> None:  # type: ignore[no-untyped-def]
    assert function([]) is None


def test_shares_of_absent_values_only_are_none() -> None:
    assert top_answer_share([None]) is None
    assert distinct_share([None, None]) is None


def test_evolution_point_averages_over_the_same_trajectories() -> None:
    groups = [(votes("AAAB"), [0, 9, 1, 0]), (votes("AABB"), [1, 1, 0, 0])]
    assert evolution_point(groups) == EvolutionPoint(3 / 8, 12 / 8, 8)
    assert evolution_point([]) is None
    with pytest.raises(ValueError, match="1 tool-call counts for a group of 2"):
        evolution_point([(votes("AB"), [1])])


def test_task_sample_is_seeded_sorted_and_bounded() -> None:
    drawn = sample_tasks(1000, 200, seed=3)
    assert drawn == sample_tasks(1000, 200, seed=3) != sample_tasks(1000, 200, seed=4)
    assert len(set(drawn)) == 200
    assert drawn == sorted(drawn)
    assert sample_tasks(5, 200, seed=0) == [0, 1, 2, 3, 4]


def matched(step: int, current: str, anchor: str) -> MatchedGroups:
    def labels(word: str) -> list[str | None]:
        return [None if letter == "." else letter for letter in word]

    return MatchedGroups(step, labels(current), labels(anchor))


def test_structure_table_by_thirds() -> None:
    groups = [
        matched(0, "AAAB", "AAAA"),  # same majority: zero
        matched(1, "AAAA", "BBBB"),  # unanimous: zero, majorities differ
        matched(1, "AABB", "BBBB"),  # unresolved: a candidate, not valid
        matched(2, "AAAB", "BBAA"),  # unresolved anchor
        matched(2, "AAAB", "BBBB"),  # two classes: collinear
        matched(3, "AA.B", "BBBB"),  # invalid is a third class
        matched(4, "AAC.", "ZZZZ"),  # anchor label absent: collinear
        matched(5, "AAB", "AAAA"),  # incomplete
    ]
    table = structure_table(groups, steps=6, group_size=4, seed=0)
    assert table["early"] == StructureRow(3, 2, 1, 2, 0, 0)
    assert table["middle"] == StructureRow(3, 2, 0, 0, 1, 1)
    assert table["late"] == StructureRow(2, 1, 0, 0, 1, 0)
    assert table["early"].percent(table["early"].zero) == 100.0
    assert StructureRow().percent(0) is None


def test_rows_add_up_over_runs() -> None:
    row = StructureRow(3, 2, 1, 2, 0, 0) + StructureRow(2, 2, 0, 0, 1, 1)
    assert row == StructureRow(5, 4, 1, 2, 1, 1)


def test_each_third_gives_a_seeded_sample() -> None:
    words = ["".join(word) for word in itertools.product("ABC", repeat=4)]
    groups = [matched(step, word, "BBBB") for step in range(9) for word in words]
    table = structure_table(groups, steps=9, group_size=4, seed=1)
    assert [row.candidates for row in table.values()] == [120, 120, 120]
    assert table == structure_table(groups, steps=9, group_size=4, seed=1)
    assert table != structure_table(groups, steps=9, group_size=4, seed=2)
    for row in table.values():
        assert row.valid == row.zero + row.collinear + row.non_collinear


def test_thirds_follow_the_step_and_unknown_steps_are_refused() -> None:
    table = structure_table(
        [matched(step, "AAAB", "AAAA") for step in range(128)], steps=128, group_size=4, seed=0
    )
    assert [row.candidates for row in table.values()] == [43, 43, 42]
    with pytest.raises(ValueError, match="step 128 is outside a stage of 128 steps"):
        structure_table([matched(128, "AB", "AB")], steps=128, group_size=2, seed=0)
