"""The two training stages as processes: what they publish, and that kill -9 changes nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainer_world import World, lines, untimed, write_base_model

from training.models import load_model, weights_digest
from training.rollout.trajectory import Status, Stop, Trajectory
from training.sandbox.isolation import SandboxError, choose
from training.sandbox.settings import SandboxSettings
from training.trainers.torch.backend import TorchPolicy

try:
    choose(SandboxSettings(isolation="bubblewrap"))
    MISSING = ""
except SandboxError as error:
    MISSING = str(error)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    write_base_model(folder)
    return folder


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], World]:
    made = iter(range(10))
    return lambda: World(tmp_path / f"store{next(made)}")


def test_the_curriculum_stage_publishes_its_candidates_and_survives_a_kill(
    world: Callable[[], World], base_model: Path
) -> None:
    straight, killed = world(), world()
    artifacts = []
    for one in (straight, killed):
        base = one.base(base_model)
        anchor = one.publish("anchor", lambda payload: (payload / "anchor.json").write_text("{}"))
        inputs = dict.fromkeys(("base", "curriculum", "executor", "frozen"), base)
        spec = one.spec("curriculum", {**inputs, "anchor": anchor})
        if one is killed:
            one.kill_after(spec, step=2)  # a checkpoint is written after step 1
            one.store.place(spec.identity).work.joinpath("candidates.jsonl").open("a").write("{")
        artifacts.append(one.run(spec))
    whole, resumed = artifacts
    assert straight.store.attempt(spec.identity) == 1
    assert killed.store.attempt(spec.identity) == 2
    for name in ("model/model.safetensors", "candidates.jsonl", "anchor_groups.jsonl"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes(), name
    metrics = [lines(a.parent / "work/metrics.jsonl") for a in artifacts]
    assert untimed(metrics[0]) == untimed(metrics[1])
    assert [line["step"] for line in metrics[0]] == [0, 1, 2, 3]

    candidates = lines(whole / "candidates.jsonl")
    assert [c["index"] for c in candidates] == list(range(6)) * 4
    valid = [c for c in candidates if c["r_fmt"] == 1]
    assert len(valid) > 6, "the base model is too weak for this test"
    assert all(len(c["current"]["labels"]) == len(c["reference"]["labels"]) == 4 for c in valid)
    assert any(c["current"] != c["reference"] for c in valid), "the groups are not independent"
    assert any(n for c in valid for n in c["current"]["tool_calls"]), "no tool was called"
    anchored = lines(whole / "anchor_groups.jsonl")
    assert [(a["step"], a["index"], a["labels"]) for a in anchored] == [
        (c["step"], c["index"], c["reference"]["labels"]) for c in valid
    ]
    for step in range(4):
        advantages = [c["advantage"] for c in candidates if c["step"] == step]
        assert sum(advantages) == pytest.approx(0, abs=1e-6)
    assert weights_digest(load_model(whole / "model")) != weights_digest(load_model(base_model))
    assert metrics[0][0]["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics[0][3]["kl"] > 1e-6
    assert max(line["engine_gap"] for line in metrics[0]) < 1e-3


def test_the_executor_stage_publishes_its_ledger_and_survives_a_kill(
    world: Callable[[], World], base_model: Path
) -> None:
    artifacts = []
    for kill in (False, True):
        one = world()
        base, (pool, cache) = one.base(base_model), one.pool()
        inputs = {"base": base, "executor": base, "task_pool": pool, "anchor_cache": cache}
        changes = {"optimiser": {"mini_batches": 2}, "rollout": {"temperature": 0.05}}
        spec = one.spec("executor", inputs, changes)
        if kill:
            one.kill_after(spec, step=2)
        artifacts.append(one.run(spec))
    whole, resumed = artifacts
    for name in ("model/model.safetensors", "ledger.jsonl", "transcripts.jsonl"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes(), name
    metrics = [lines(a.parent / "work/metrics.jsonl") for a in artifacts]
    assert untimed(metrics[0]) == untimed(metrics[1])

    ledger = lines(whole / "ledger.jsonl")
    assert [line["batch"] for line in ledger if line["task"].endswith(("-0", "-1"))] == [0, 0, 1, 1]
    played = [line for line in ledger if line["outcome"] != "infra"]
    assert {line["task"] for line in ledger} - {line["task"] for line in played} == {"b1-5"}
    assert any(line["outcome"] == "included" for line in played)
    assert all(len(line["labels"]) == len(line["reference_labels"]) == 4 for line in played)
    assert [a["labels"] for a in played[:3]] != [a["labels"] for a in played[3:6]]
    assert max(line["engine_gap"] for line in metrics[0] if "loss" in line) < 1e-3
    transcripts = lines(whole / "transcripts.jsonl")
    assert [t["step"] for t in transcripts] == [s for s in range(4) for _ in range(4)]
    assert any("<output>" in t["text"] for t in transcripts)
    result = json.loads((whole / "result.json").read_text())
    assert result["steps"] == 4
    assert result["metrics"]["infra_dropped"] == 2
    assert 0 <= result["metrics"]["v_adv"] < 1


@pytest.mark.parametrize("reference", ["none", "second_group", "anchor"])
def test_every_kind_of_reference_trains(
    world: Callable[[], World], base_model: Path, reference: str
) -> None:
    one = world()
    base, (pool, _) = one.base(base_model), one.pool()
    inputs = {"base": base, "executor": base, "task_pool": pool}
    if reference == "anchor":
        anchor = one.publish("anchor", lambda payload: (payload / "anchor.json").write_text("{}"))
        inputs |= {"anchor": anchor, "frozen": base}
    changes = {"executor": {"reference": reference, "steps": 2}, "curriculum": {"steps": 2}}
    ledger = lines(one.run_here(one.spec("executor", inputs, changes)) / "ledger.jsonl")
    assert len(ledger) == 6
    with_reference = ["reference_labels" in line for line in ledger]
    assert with_reference == [reference != "none"] * 6
    if reference != "none":
        assert any(line["labels"] != line["reference_labels"] for line in ledger)


def test_a_run_without_an_anchor_measures_its_gap_apart(
    world: Callable[[], World], base_model: Path
) -> None:
    one = world()
    base = one.base(base_model)
    changes = {
        "curriculum": {"lambda_ref": 0.0, "steps": 2},
        "executor": {"reference": "none", "steps": 2},
        "rollout": {"tool": False},
    }
    inputs = dict.fromkeys(("base", "curriculum", "executor"), base)
    artifact = one.run_here(one.spec("curriculum", inputs, changes))
    valid = [c for c in lines(artifact / "candidates.jsonl") if c["r_fmt"] == 1]
    assert valid
    assert all(c["r_ref"] == 0 for c in valid)
    assert all("reference" in c for c in valid)
    assert (artifact / "anchor_groups.jsonl").read_text() == ""
    assert "seconds_diagnostic" in lines(artifact.parent / "work/metrics.jsonl")[0]


def test_a_candidate_that_could_not_be_sampled_is_no_bad_candidate(
    world: Callable[[], World], base_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = TorchPolicy.rollout

    async def third_is_lost(*arguments: Any) -> list[list[Trajectory]]:
        groups = await sample(*arguments)
        groups[2][0] = replace(groups[2][0], status=Status.INFRA, text="", stop=Stop.INFRA)
        return groups

    monkeypatch.setattr(TorchPolicy, "rollout", third_is_lost)
    one = world()
    base = one.base(base_model)
    changes = {"curriculum": {"lambda_ref": 0.0, "steps": 1}, "executor": {"reference": "none"}}
    inputs = dict.fromkeys(("base", "curriculum", "executor"), base)
    artifact = one.run_here(one.spec("curriculum", inputs, changes))
    candidates = lines(artifact / "candidates.jsonl")
    lost = [c for c in candidates if c["r_fmt"] is None]
    assert [c["index"] for c in lost] == [2]
    assert "advantage" not in lost[0]
    advantages = [c["advantage"] for c in candidates if c not in lost]
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    assert json.loads((artifact / "result.json").read_text())["metrics"]["infra_dropped"] == 1
