"""The stage contract, on the real process: exit status, result, failure, reuse, resume."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training.errors import ConfigError, InfraError, Interrupted, NumericError
from training.spec import StageSpec
from training.stages.__main__ import STAGES
from training.stages.base import StageContext, read_jsonl, truncate_jsonl, write_jsonl
from training.stages.failure import STATUS_TAKEN, classify
from training.store import Store

CANDIDATES = [
    {"step": 0, "index": 0, "r_fmt": 1, "problem": "What is 1 + 1?"},
    {"step": 0, "index": 1, "r_fmt": 0, "problem": None},
    {"step": 1, "index": 0, "r_fmt": 1, "problem": "What is 1 + 1?"},
    {"step": 1, "index": 1, "r_fmt": None, "problem": "What is 2 + 2?"},
]


def spec(stage: str, inputs: dict[str, str], **changes: Any) -> StageSpec:
    values: dict[str, Any] = {"iteration": 1, "seed": 0, "config": {}, "files": {}}
    values |= {"code": "c", "libraries": {}, **changes}
    return StageSpec(stage=stage, inputs=inputs, **values)


def publish(store: Store, identity: str, files: dict[str, list[dict[str, Any]]]) -> None:
    with store.hold(identity) as attempt:
        store.place(identity).payload.mkdir()
        for name, records in files.items():
            write_jsonl(store.place(identity).payload / name, records)
        store.publish(identity, attempt, {"steps": 2, "seconds": 3.0})


def run(store: Store, told: StageSpec, name: str | None = None) -> subprocess.CompletedProcess[str]:
    place = store.place(told.identity)
    place.root.mkdir(parents=True, exist_ok=True)
    told.save(place.spec)
    command = [sys.executable, "-m", "training.stages", name or told.stage]
    command += ["--spec", str(place.spec), "--out", str(place.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    publish(store, "a" * 64, {"candidates.jsonl": CANDIDATES})
    return store


def test_a_stage_publishes_and_is_not_run_twice(store: Store) -> None:
    told = spec("task_pool", {"curriculum": "a" * 64})
    assert run(store, told).returncode == 0
    artifact = store.place(told.identity).artifact
    tasks = read_jsonl(artifact / "tasks.jsonl")
    assert [(t["id"], t["batch"]) for t in tasks] == [("b0-0", 0), ("b1-0", 1)]
    assert json.loads((artifact / "pool.json").read_text()) == {"batches": 2, "tasks": 2}
    result = store.result(told.identity)
    assert result["metrics"]["distinct_task_share"] == 0.5
    assert result["metrics"]["format_valid_share"] == 0.5
    assert result["inputs"]["curriculum"]["identity"] == "a" * 64
    assert run(store, told).returncode == 0
    assert store.attempt(told.identity) == 2  # looked, found it done, published nothing
    assert store.result(told.identity)["attempt"] == 1


def test_a_stage_that_another_computes_leaves_its_folder_alone(store: Store) -> None:
    told = spec("task_pool", {"curriculum": "a" * 64})
    place = store.place(told.identity)
    with store.hold(told.identity):
        done = run(store, told)
    assert done.returncode == STATUS_TAKEN
    assert "is being computed by process" in done.stderr
    assert not place.failure.exists()


def test_a_request_to_stop_passes_an_event_loop_and_what_catches_failures() -> None:
    def stop() -> None:
        raise Interrupted("asked to stop")

    async def work() -> None:
        asyncio.get_running_loop().call_soon(stop)
        with contextlib.suppress(Exception):
            await asyncio.sleep(60)

    with pytest.raises(Interrupted):
        asyncio.run(work())


def test_a_damaged_input_is_an_infra_failure_before_any_step(store: Store) -> None:
    (store.place("a" * 64).artifact / "candidates.jsonl").write_text("{}\n", encoding="utf-8")
    told = spec("task_pool", {"curriculum": "a" * 64})
    done = run(store, told)
    assert done.returncode == 1
    failure = json.loads(store.place(told.identity).failure.read_text(encoding="utf-8"))
    assert failure["kind"] == "infra"
    assert "missing or its bytes do not match" in failure["message"]
    trace = store.place(told.identity).work / failure["traceback_file"]
    assert "InfraError" in trace.read_text(encoding="utf-8")
    assert store.verify(told.identity) is None


def test_a_bug_is_called_a_bug(store: Store) -> None:
    publish(store, "b" * 64, {"candidates.jsonl": [{"step": 0}]})
    told = spec("task_pool", {"curriculum": "b" * 64})
    assert run(store, told).returncode == 1
    failure = json.loads(store.place(told.identity).failure.read_text(encoding="utf-8"))
    assert failure["kind"] == "bug"
    assert failure["message"].startswith("KeyError")


def test_the_spec_must_fit_the_command(store: Store) -> None:
    told = spec("task_pool", {"curriculum": "a" * 64})
    assert run(store, told, name="anchor").returncode == 2


def test_every_stage_is_a_module() -> None:
    from importlib import import_module

    for name in STAGES:
        assert callable(import_module(f"training.stages.{name}").run)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("x"), "config"),
        (InfraError("x"), "infra"),
        (NumericError("x"), "numeric"),
        (Interrupted("x"), "interrupted"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 GB"), "out_of_memory"),
        (RuntimeError("Error while serializing: No space left on device (os error 28)"), "infra"),
        (OSError(28, "No space left on device"), "infra"),
        (ValueError("x"), "bug"),
    ],
)
def test_failures_are_typed(error: Exception, kind: str) -> None:
    assert classify(error) == kind


def test_metrics_refuse_what_is_not_a_number(store: Store) -> None:
    told = spec("task_pool", {})
    store.place(told.identity).work.mkdir(parents=True)
    context = StageContext(told, store, 1)
    context.log_metrics(0, {"loss": 1.0})
    for bad in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(NumericError, match="loss became"):
            context.log_metrics(1, {"loss": bad})
    context.log_metrics(1, {"loss": 0.5, "gap": None})
    context.resume_metrics(1)
    assert read_jsonl(context.work / "metrics.jsonl") == [{"loss": 1.0, "step": 0}]


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    text = "one line\u2028for JSON"
    path.write_text(f'{{"step": 0, "x": "{text}"}}\n{{"step": 1}}\n{{"st', encoding="utf-8")
    truncate_jsonl(path, 5)
    assert read_jsonl(path) == [{"step": 0, "x": text}, {"step": 1}]


def test_a_section_outside_the_spec_cannot_be_read(store: Store) -> None:
    from training.config import Executor, Optimiser

    told = spec("executor", {}, config={"executor": {"alpha": 0.25}})
    context = StageContext(told, store, 1)
    assert context.section(Executor).alpha == 0.25
    with pytest.raises(KeyError):
        context.section(Optimiser)
