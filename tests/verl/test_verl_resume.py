"""The executor stage of verl: it learns, and goes on after kill -9."""

import time
from pathlib import Path

import pytest
from trainer_world import lines
from verl_world import VerlWorld, end

from training.models import load_model, weights_digest

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
DEADLINE = 400.0
"""Seconds for a whole stage, most of them for starting Ray, workers and vLLM."""


def test_the_executor_learns_and_goes_on_after_a_kill(tmp_path: Path, base_model: Path) -> None:
    world = VerlWorld(tmp_path / "store")
    base, (pool, cache) = world.base(base_model), world.pool()
    inputs = {"base": base, "executor": base, "task_pool": pool, "anchor_cache": cache}
    spec = world.told("executor", inputs, {"executor": {"steps": 4}})
    place = world.store.place(spec.identity)
    process = world.begin(spec)
    try:
        deadline = time.monotonic() + DEADLINE
        while not (place.work / "checkpoints" / "step_2").is_dir():
            assert process.poll() is None, world.tail(spec)
            assert time.monotonic() < deadline, world.tail(spec)
            time.sleep(0.1)
    finally:
        end(process)
    done = lines(place.work / "metrics.jsonl")
    artifact = world.finish(spec, DEADLINE)

    metrics = lines(place.work / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    assert metrics[:2] == done[:2], "finished steps were computed again"
    learnt = [line for line in metrics if "loss" in line]
    assert len(learnt) >= 2, "the base model is too weak for this test"
    assert all(line["rollout_correlation"] > 0.999 for line in learnt)
    assert all(line["ratio"] == pytest.approx(1, abs=1e-4) for line in learnt)
    assert learnt[0]["kl"] == pytest.approx(0, abs=1e-5)
    assert learnt[-1]["kl"] > 1e-5, "the reference is not the base model"
    ledger = [line for line in lines(artifact / "ledger.jsonl") if line["outcome"] != "infra"]
    assert all(len(line["labels"]) == 4 for line in ledger)
    assert any(calls for line in ledger for calls in line["tool_calls"])
    trained = load_model(artifact / "model")
    assert weights_digest(trained) != weights_digest(load_model(base_model))
    assert world.store.attempt(spec.identity) == 2
