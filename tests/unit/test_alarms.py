"""Alarms: which steps raise them, when a streak is a warning, and when it ends a stage."""

import json
from pathlib import Path
from typing import Any

import pytest

from training.algorithms.alarms import Alarm, Limits, alarms
from training.config import Alarms, Curriculum, ExperimentConfig, Rollout, identity_dump
from training.config_load import load_config
from training.errors import NumericError
from training.plan import plan
from training.spec import StageSpec
from training.stages.alarm_log import ALARMS, alarm_limits
from training.stages.base import StageContext, read_jsonl
from training.store import Store

LIMITS = Limits(
    patience=3,
    stop_after=5,
    min_entropy=0.02,
    max_share=0.8,
    terms=("uncertainty", "reference_reward"),
)
HEALTHY: dict[str, float | int | None] = {
    "entropy": 0.3,
    "zero_variance_share": 0.4,
    "distinct_task_share": 1.0,
    "unresolved_share": 0.4,
    "truncated_share": 0.1,
    "mean_tool_calls": 0.5,
}


def steps(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Healthy steps with changes, whose reward terms vary."""
    varied = [{"uncertainty": i / 7, "reference_reward": i / 9} for i in range(len(changes))]
    return [
        {"step": i, **HEALTHY, **v, **c}
        for i, (v, c) in enumerate(zip(varied, changes, strict=True))
    ]


def raised(history: list[dict[str, Any]], limits: Limits = LIMITS) -> list[tuple[int, str, str]]:
    """All alarms of a history that grows step by step."""
    found: list[Alarm] = []
    for end in range(1, len(history) + 1):
        found += alarms(history[:end], limits)
    return [(alarm.step, alarm.name, alarm.level) for alarm in found]


def test_healthy_steps_and_single_bad_ones_raise_nothing() -> None:
    bad = {"entropy": 0.0, "unresolved_share": 1.0, "mean_tool_calls": 0.0}
    assert raised(steps({}, bad, bad, {}, bad, bad, {})) == []
    assert alarms([], LIMITS) == []


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"entropy": 0.019}, "entropy_collapse"),
        ({"zero_variance_share": 0.8}, "zero_variance"),
        ({"distinct_task_share": 0.19}, "duplicate_tasks"),
        ({"unresolved_share": 0.8}, "unresolved"),
        ({"truncated_share": 0.9}, "truncated"),
        ({"mean_tool_calls": 0.01}, "tool_unused"),
    ],
)
def test_a_streak_is_one_warning_and_a_new_streak_another(bad: dict[str, Any], name: str) -> None:
    history = steps({}, bad, bad, bad, bad, {}, bad, bad, bad)
    assert raised(history) == [(3, name, "soft"), (8, name, "soft")]


def test_what_a_step_does_not_have_is_not_bad() -> None:
    absent = dict.fromkeys(HEALTHY)
    assert raised(steps(*[absent] * 8)) == []


@pytest.mark.parametrize(
    ("bad", "name", "hard"),
    [
        ({"entropy": 0.001}, "entropy_collapse", True),
        ({"zero_variance_share": 1.0}, "zero_variance", True),
        ({"zero_variance_share": 0.99}, "zero_variance", False),
        ({"distinct_task_share": 0.02}, "duplicate_tasks", True),
        ({"unresolved_share": 1.0}, "unresolved", False),
        ({"truncated_share": 1.0}, "truncated", False),
        ({"mean_tool_calls": 0.0}, "tool_unused", False),
    ],
)
def test_only_a_collapse_becomes_hard(bad: dict[str, Any], name: str, hard: bool) -> None:
    history = steps(*[bad] * 6)
    warned = [(2, name, "soft")]
    assert raised(history) == warned + [(4, name, "hard"), (5, name, "hard")] * hard
    never = Limits(3, 0, 0.02, 0.8)
    assert raised(history, never) == warned


def test_a_reward_term_that_does_not_change_is_a_warning() -> None:
    still = {"uncertainty": 0.5}
    assert raised(steps(still, still, still)) == []
    assert raised(steps(*[still] * 6)) == [(3, "constant_uncertainty", "soft")]
    assert raised(steps(*[still] * 6), Limits(3, 5, 0.02, 0.8)) == []
    (alarm,) = alarms(steps(*[still] * 4), LIMITS)
    assert alarm.sentence == (
        "the reward term 'uncertainty' does not change for 3 steps in a row (uncertainty is 0.5)"
    )


def test_only_terms_with_a_weight_must_vary() -> None:
    plain = alarm_limits(Alarms(), Rollout(), Curriculum())
    assert plain.terms == ("uncertainty", "tool_reward", "reference_reward")
    assert alarm_limits(Alarms(), Rollout(), Curriculum(lambda_ref=0, w_unc=0)).terms == (
        "tool_reward",
    )
    without = alarm_limits(Alarms(), Rollout(tool=False), Curriculum())
    assert "tool_reward" not in without.terms
    assert not without.tool
    assert alarm_limits(Alarms(), Rollout(), None).terms == ()


def test_no_identity_depends_on_the_alarms() -> None:
    assert identity_dump(Alarms()) == {}
    changed = {"alarms": {"patience": 9, "stop_after": 0, "min_entropy": 0.5, "max_share": 0.1}}
    before, after = plan(load_config("tiny")), plan(load_config("tiny", overrides=changed))
    assert [e.identity for e in before] == [e.identity for e in after]
    by_name = {entry.name: entry.spec for entry in after}
    for name in ("i1/curriculum", "i1/executor"):
        assert by_name[name].runtime["alarms"] == changed["alarms"]


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    config = ExperimentConfig(alarms=Alarms(patience=2, stop_after=3))
    sections = {name: identity_dump(getattr(config, name)) for name in ("rollout", "alarms")}
    runtime = {"alarms": config.alarms.model_dump()}
    spec = StageSpec("executor", 1, 0, sections, {}, {}, "code", {}, runtime=runtime)
    store = Store(tmp_path)
    store.place(spec.identity).work.mkdir(parents=True)
    return StageContext(spec, store, 1)


def test_a_stage_keeps_its_alarms_and_stops_at_a_hard_one(context: StageContext) -> None:
    flat = {**HEALTHY, "entropy": 0.0}
    context.log_metrics(0, flat)
    context.log_metrics(1, flat)
    with pytest.raises(
        NumericError, match=r"collapsed at step 2: .*entropy is 0.*nothing was publ"
    ):
        context.log_metrics(2, flat)
    noted = read_jsonl(context.work / ALARMS)
    assert [(line["step"], line["level"]) for line in noted] == [(1, "soft"), (2, "hard")]
    assert noted[1]["sentence"] == "the policy hardly varies for 3 steps in a row (entropy is 0)"


def test_a_resumed_stage_counts_what_it_had_logged_before(context: StageContext) -> None:
    flat = {**HEALTHY, "entropy": 0.0}
    context.log_metrics(0, flat)
    context.log_metrics(1, flat)
    context.resume_metrics(1)
    assert (context.work / ALARMS).read_text() == ""
    context.log_metrics(1, HEALTHY)
    context.log_metrics(2, HEALTHY)
    assert (context.work / ALARMS).read_text() == ""
    context.resume_metrics(1)
    context.log_metrics(1, flat)
    assert [json.loads(x)["step"] for x in (context.work / ALARMS).open()] == [1]
