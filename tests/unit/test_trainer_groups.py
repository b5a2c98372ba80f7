"""What the stages decide about a group and write down about it."""

import json
from dataclasses import replace

import pytest

from training.algorithms.candidate import read_candidate
from training.algorithms.curriculum_reward import score_batch
from training.config import Adpo, Advantage, Executor
from training.rollout.trajectory import Status, Stop, ToolCall, Trajectory
from training.trainers import curriculum_records, executor_groups
from training.trainers.executor_groups import GroupUpdate, assess
from training.trainers.judges import Judgement


def labels(text: str) -> list[str | None]:
    return [None if letter == "." else letter for letter in text]


def judged(current: str, reference: str | None, **executor: object) -> GroupUpdate:
    return assess(
        labels(current),
        None if reference is None else labels(reference),
        Executor(**executor),  # type: ignore[arg-type]
        Adpo(),
        Advantage(std="population"),
    )


def test_an_included_group_has_the_weighted_mix_of_both_advantages() -> None:
    group = judged("AAAABBBC", "BBBBBBBA")
    # Agreement 1/2: quality .4, weight .6 + .4 · .4, upper clip .2 + .1 · .6.
    assert group.outcome == "included"
    assert group.weight == pytest.approx(0.76)
    assert group.clip_high == pytest.approx(0.26)
    mix = [0.966] * 4 + [-1.128] * 3 + [-0.481]
    assert group.advantages == pytest.approx([0.76 * a for a in mix], abs=1e-3)


@pytest.mark.parametrize(
    ("current", "reference", "outcome"),
    [
        ("AABB....", "AAAAAAAA", "unresolved"),
        ("........", None, "unresolved"),
        ("AAAB....", "AABB....", "reference_unresolved"),
        ("AAAB....", "........", "reference_unresolved"),
    ],
)
def test_a_group_without_a_majority_on_a_needed_side_is_left_out(
    current: str, reference: str | None, outcome: str
) -> None:
    group = judged(current, reference)
    assert (group.outcome, group.advantages) == (outcome, [])


def test_without_a_reference_the_current_advantage_has_coefficient_one() -> None:
    assert judged("AAAABBBC", None).advantages == pytest.approx([0.76] * 4 + [-0.76] * 4, abs=1e-5)


def test_the_step_size_control_shrinks_every_advantage() -> None:
    plain = judged("AAAABBBC", None, alpha=0.6)
    small = judged("AAAABBBC", None, alpha=0.6, scale_without_reference=True)
    assert small.advantages == pytest.approx([0.4 * a for a in plain.advantages])


OTHER = {"tool_calls": [1] * 8, "truncated": [True] + [False] * 7}


def test_the_ledger_sums_up_to_the_stage_numbers() -> None:
    pairs = [("AAAABBBC", "BBBBBBBA"), ("AAAAAAAA", "AAAAAAAA"), ("AABB....", "AAAAAAAA")]
    lines = [judged(c, r).record(labels(c), labels(r)) | OTHER for c, r in pairs]
    lines.append({"outcome": "infra"})
    numbers = executor_groups.summarise(json.loads(json.dumps(lines)))
    spread = sum(a * a for a in lines[0]["advantages"]) / 8  # the mean is 0
    assert numbers["v_adv"] == pytest.approx(spread / 3)
    assert numbers["groups"] == 3
    assert numbers["infra_dropped"] == 1
    assert numbers["included_share"] == pytest.approx(2 / 3)
    assert numbers["unresolved_share"] == pytest.approx(1 / 3)
    assert numbers["agreement"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert numbers["unanimous_share"] == pytest.approx(1 / 3)
    assert numbers["zero_variance_share"] == pytest.approx(2 / 3)
    assert numbers["truncated_share"] == 1 / 8
    assert numbers["valid_answer_share"] == pytest.approx(20 / 24)
    assert numbers["same_majority_share"] == 0.5
    assert numbers["structure_zero_share"] == 0.5
    assert numbers["structure_non_collinear_share"] == 0.5
    assert numbers["mean_tool_calls"] == 1
    assert numbers["top_answer_share"] == 1


def test_a_stage_without_groups_has_blanks_and_not_zeros() -> None:
    numbers = executor_groups.summarise([])
    assert numbers["groups"] == 0
    assert numbers["v_adv"] is None
    assert curriculum_records.summarise([])["reward"] is None


def group(text: str, calls: int) -> list[Trajectory]:
    return [
        Trajectory(
            task="t",
            prompt_ids=[1],
            output_ids=[2],
            mask=[1],
            logprobs=[-1.0],
            turns=1,
            calls=[ToolCall(1, "ok", 0.1, True)] * calls,
            status=Status.MISSING if label is None else Status.VALID,
            label=label,
            reason="",
            stop=Stop.EOS,
            seed=0,
            text="",
        )
        for label in labels(text)
    ]


def written(text: str) -> Trajectory:
    stop = Stop.LENGTH if text == "nonsense" else Stop.EOS
    return replace(group("A", 0)[0], text=text, stop=stop)


def test_candidate_lines_sum_up_to_the_stage_numbers() -> None:
    texts = ["Problem: 1 + 1\nAnswer: 2", "Problem: 6 * 9\nAnswer: 54", "nonsense", "Problem: x"]
    candidates = [read_candidate(text) for text in texts]
    current = [group("AAA.", 2), group("AB..", 0), None, None]
    reference = [group("AA..", 1), group("BBBB", 1), None, None]
    judged = [
        None if c is None else Judgement(c, r) for c, r in zip(current, reference, strict=True)
    ]
    scores = score_batch(candidates, [curriculum_records.rollouts(j, True) for j in judged])
    lines = [
        curriculum_records.candidate_line(i, written(texts[i]), candidates[i], scores[i], judged[i])
        for i in range(4)
    ]
    lost = read_candidate("Problem: 2 + 2\nAnswer: 4")
    lines.append(curriculum_records.candidate_line(4, written("…"), lost, None, None))
    numbers = curriculum_records.summarise(json.loads(json.dumps(lines)))
    assert [line["r_fmt"] for line in lines] == [1, 1, 0, 0, None]
    assert lines[0]["current"] == {"labels": ["A", "A", "A", None], "tool_calls": [2, 2, 2, 2]}
    assert numbers["format_valid_share"] == 0.5
    assert numbers["infra_dropped"] == 1
    assert numbers["agreement"] == pytest.approx((0.75 + 0) / 2)
    assert numbers["unresolved_share"] == 0.5
    assert numbers["positive_gap_share"] == 0.25  # over all four candidates of the batch
    assert numbers["mean_tool_calls"] == 1
    assert numbers["tool_reward"] == 1
    assert numbers["uncertainty"] == pytest.approx((0.5 + 0.5) / 2)
    assert numbers["reference_reward"] == pytest.approx(0.25 / 2)
    assert numbers["valid_answer_share"] == pytest.approx(5 / 8)
    assert numbers["distinct_task_share"] == 1
    assert numbers["truncated_share"] == 1 / 5
    assert numbers["zero_variance_share"] == 0
    flat = [
        {**line, "step": line["index"] // 2, "advantage": line["index"] // 2} for line in lines[:4]
    ]
    assert curriculum_records.summarise(flat)["zero_variance_share"] == 0.5


def test_a_reference_for_the_statistics_alone_enters_no_reward() -> None:
    text = "Problem: 1 + 1\nAnswer: 2"
    candidate = read_candidate(text)
    judgement = Judgement(group("AAAA", 0), group("AABB", 0))
    assert curriculum_records.rollouts(judgement, True).anchor is not None  # type: ignore[union-attr]
    outside = curriculum_records.rollouts(judgement, False)
    line = curriculum_records.candidate_line(
        0, written(text), candidate, score_batch([candidate], [outside])[0], judgement
    )
    assert line["r_ref"] == 0
    assert line["reference"]["labels"] == ["A", "A", "B", "B"]


def test_without_a_reference_there_is_no_gap_to_report() -> None:
    text = "Problem: 1 + 1\nAnswer: 2"
    candidate = read_candidate(text)
    judgement = Judgement(group("AAAA", 0), None)
    scores = score_batch([candidate], [curriculum_records.rollouts(judgement, True)])
    line = curriculum_records.candidate_line(0, written(text), candidate, scores[0], judgement)
    assert curriculum_records.summarise([line])["positive_gap_share"] is None
