"""Configuration: the paper's defaults, layers, and mistakes told in one sentence."""

from typing import Any

import pytest

from training.config import ExperimentConfig, identity_dump
from training.config_load import Overrides, given, load_config, names, parse_assignments
from training.errors import ConfigError
from training.plan import plan


def test_defaults_are_the_papers_table_3() -> None:
    c = ExperimentConfig()
    assert (c.iterations, c.curriculum.steps, c.executor.steps) == (3, 32, 128)
    assert (c.curriculum.batch_size, c.rollout.group_size) == (64, 8)
    assert (c.rollout.max_turns, c.rollout.max_turn_tokens) == (8, 4096)
    assert (c.curriculum.w_unc, c.curriculum.w_tool, c.curriculum.w_rep) == (1.0, 0.25, 0.20)
    assert (c.curriculum.lambda_ref, c.executor.alpha) == (0.4, 0.6)
    assert (c.curriculum.tool_cap, c.curriculum.repetition_distance) == (4, 0.6)
    assert (c.adpo.p_low, c.adpo.p_high, c.adpo.weight_min) == (0.3, 0.8, 0.6)
    assert (c.adpo.clip_low, c.adpo.clip_high, c.adpo.clip_high_extra) == (0.2, 0.2, 0.1)
    assert (c.optimiser.learning_rate, c.optimiser.kl_coefficient) == (1e-6, 0.01)
    assert (c.sandbox.wall_seconds, c.sandbox.memory_mb) == (30, 1024)
    assert (c.advantage.std, c.optimiser.mini_batches) == ("sample", 1)


def test_every_profile_and_method_resolves_and_plans() -> None:
    assert set(names("profiles")) >= {"tiny", "smollm2", "qwen3-4b"}
    expected = {"anchorloop", "agent0", "rref_only", "ahist_only", "base", "base_tool"}
    expected |= {"anchorloop_fixed", "anchorloop_every2", "anchorloop_uncached"}
    expected |= {"agent0_scaled", "second_group"}
    assert set(names("methods")) >= expected
    for profile in names("profiles"):
        for method in names("methods"):
            entries = plan(load_config(profile, method))
            assert entries[0].name == "i0/base_model"
            assert len({entry.identity for entry in entries}) == len(entries)


def test_layers_go_paper_profile_method_override() -> None:
    assert load_config("tiny").curriculum.steps == 4
    assert load_config("tiny", "agent0").curriculum.lambda_ref == 0
    changed = load_config("tiny", "agent0", {"curriculum": {"lambda_ref": 0.2}})
    assert changed.curriculum.lambda_ref == 0.2
    assert changed.curriculum.steps == 4


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["executor.steps=10"], "executor.steps (K_E) 10 must be a multiple"),
        (["executor.alpha=1.5"], "executor.alpha = 1.5"),
        (["executor.alpha=-0.1"], "executor.alpha = -0.1"),
        (["curriculum.lambda_ref=2"], "curriculum.lambda_ref = 2"),
        (["rollout.group_size=1"], "rollout.group_size = 1"),
        (["executor.alhpa=0.5"], "unknown key 'executor.alhpa'; did you mean 'alpha'?"),
        (["nonsense=1"], "unknown key 'nonsense'"),
        (["curriculum.lambda_ref=0"], "set anchor.cache to 'resample'"),
        (["adpo.p_low=0.9"], "p_low 0.9 must be below p_high 0.8"),
        (["trainer.backend=verl"], "set optimiser.kl to 'k3'"),
        (["trainer.scoring_gpus=-1"], "trainer.scoring_gpus = -1"),
        (["model.remote_code=true"], "pinned model.revision"),
        (["executor.steps"], "not of the form section.key=value"),
        (["executor.steps=many"], "executor.steps = 'many'"),
        (["method=agent0"], "chosen by --method"),
        (["evaluation.benchmarks=[tiny,amc99]"], "benchmark 'amc99' does not exist"),
        (["evaluation.files.gsm8k=absent.jsonl"], "'absent.jsonl' is not a file"),
        (["prompts.executor=./absent.txt"], "template './absent.txt' is not a file"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(load_config("tiny", "anchorloop", parse_assignments(overrides)))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("profile", "method"), [("huge", "anchorloop"), ("tiny", "magic")])
def test_unknown_names_list_the_known(profile: str, method: str) -> None:
    with pytest.raises(ConfigError, match="choose from"):
        load_config(profile, method)


def test_the_form_never_overrides_by_its_own_defaults() -> None:
    assert given(Overrides()) == {}
    filled = Overrides.model_validate({"executor": {"alpha": 0.2}})
    assert given(filled) == {"executor": {"alpha": 0.2}}
    with pytest.raises(ValueError, match="less than or equal to 1"):
        Overrides.model_validate({"executor": {"alpha": 2}})
    with pytest.raises(ValueError, match="Extra inputs"):
        Overrides.model_validate({"executor": {"alhpa": 0.2}})


def test_numbers_in_exponent_notation_are_numbers() -> None:
    assert parse_assignments(["optimiser.learning_rate=1e-4"]) == {
        "optimiser": {"learning_rate": 1e-4}
    }


def leaves(values: dict[str, Any], prefix: str = "") -> set[str]:
    out = set()
    for key, value in values.items():
        nested = isinstance(value, dict)
        out |= leaves(value, f"{prefix}{key}.") if nested else {prefix + key}
    return out


def test_where_things_run_is_no_part_of_identity() -> None:
    kept = leaves(identity_dump(ExperimentConfig()))
    assert not kept & {"profile", "method", "sandbox.isolation", "checkpoints.every"}
    assert {"seed", "sandbox.wall_seconds", "executor.alpha"} <= kept
