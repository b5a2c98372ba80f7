"""Stages of verl that are killed go on, and those that hang end."""

import contextlib
import time
from pathlib import Path

import psutil
import pytest
from trainer_world import lines
from verl_world import VerlWorld, all_gone, descendants, end

from training.models import load_model, weights_digest

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
DEADLINE = 400.0
"""Seconds for a whole stage, most of them for starting Ray, workers and vLLM."""


def test_a_start_that_takes_too_long_is_a_typed_failure(tmp_path: Path, base_model: Path) -> None:
    """The deadline is shorter than any start; nothing may be left of what was started."""
    world = VerlWorld(tmp_path / "store")
    base, (pool, cache) = world.base(base_model), world.pool()
    inputs = {"base": base, "executor": base, "task_pool": pool, "anchor_cache": cache}
    spec = world.told("executor", inputs, deadline=8.0)
    process = world.begin(spec)
    started: dict[int, psutil.Process] = {}
    try:
        deadline = time.monotonic() + 200
        while process.poll() is None and time.monotonic() < deadline:
            started |= {p.pid: p for p in descendants(process)}
            time.sleep(0.2)
        assert process.poll() == 1, world.tail(spec)
        assert len(started) > 3
        assert all_gone(list(started.values()), 20)
    finally:
        end(process)
    failure = world.failure(spec)
    assert failure["kind"] == "infra"
    assert "trainer.deadline_seconds" in failure["message"]


def test_a_rollout_that_hangs_is_a_typed_failure(tmp_path: Path, base_model: Path) -> None:
    """vLLM's process is stopped as soon as it samples; that process too must be gone.

    The deadline is one for starts, too, so it must be long enough for one on a busy machine.
    """
    world = VerlWorld(tmp_path / "store")
    base, (pool, _) = world.base(base_model), world.pool(batches=1000)  # samples for hours
    anchor = world.publish("anchor", lambda payload: (payload / "anchor.json").write_text("{}"))
    inputs = {"frozen": base, "anchor": anchor, "task_pool": pool}
    changes = {"anchor": {"cache": "resample"}}
    spec = world.told("anchor_cache", inputs, changes, deadline=150.0)
    process = world.begin(spec)
    sampling = world.store.place(spec.identity).work / "progress.json"
    started: dict[int, psutil.Process] = {}
    try:
        deadline = time.monotonic() + DEADLINE
        while not sampling.exists():
            assert process.poll() is None, world.tail(spec)
            assert time.monotonic() < deadline, world.tail(spec)
            started |= {p.pid: p for p in descendants(process)}
            time.sleep(0.05)
        engines = [p for p in descendants(process) if "EngineCore" in words(p)]
        assert engines
        for engine in engines:
            engine.suspend()
        assert process.wait(DEADLINE) == 1
        assert all_gone([*started.values(), *engines], 20)
    finally:
        end(process)
    failure = world.failure(spec)
    assert failure["kind"] == "infra"
    assert "did not sample within 150 s (trainer.deadline_seconds)" in failure["message"]


def words(process: psutil.Process) -> str:
    """Command line of a process, empty once it has ended."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


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
