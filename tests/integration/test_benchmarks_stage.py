"""The evaluation stage on benchmark files, as a process that is killed and goes on."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainer_world import World, lines, write_base_model

from training.sandbox.isolation import SandboxError, choose
from training.sandbox.settings import SandboxSettings
from training.spec import StageSpec

pytest.importorskip("math_verify", reason="math-verify is not installed")
try:
    choose(SandboxSettings(isolation="bubblewrap"))
    MISSING = ""
except SandboxError as error:
    MISSING = str(error)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

CHANGES: dict[str, Any] = {
    "rollout": {"wave_rows": 8, "max_context_tokens": 500, "max_turn_tokens": 16},
    "evaluation": {"benchmarks": ["math500", "amc23", "humaneval", "gpqa_diamond"], "limit": 2},
}


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    write_base_model(folder, steps=20)
    return folder


def evaluation_spec(world: World, model: Path, folder: Path) -> StageSpec:
    paths = {}
    for name in ("math500", "amc23"):
        file = folder / f"{name}.jsonl"
        rows = [
            {"id": f"{name}-{i}", "question": f"{i} + {i}", "answer": str(2 * i)} for i in range(5)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths[f"benchmark.{name}"] = str(file)
    spec = world.spec("evaluation", {"executor": world.base(model)}, CHANGES)
    spec = replace(spec, paths={**spec.paths, **paths})
    spec.save(world.store.place(spec.identity).spec)
    return spec


def test_a_killed_evaluation_goes_on_and_reports_everything(
    tmp_path: Path, base_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    world = World(tmp_path / "store")
    spec = evaluation_spec(world, base_model, tmp_path)
    place = world.store.place(spec.identity)
    file = place.work / "benchmarks" / "responses.jsonl"
    process = world.start(spec)
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < 20:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = file.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]

    artifact = world.run(spec)
    assert file.read_bytes().startswith(kept)
    made = [(r["benchmark"], r["id"], r["sample"]) for r in lines(file)[1:]]
    assert len(made) == len(set(made)) == 2 + 2 * 32 + 2
    responses = lines(artifact / "benchmark_responses.jsonl")
    assert [r["benchmark"] for r in responses] == (
        ["math500"] * 2 + ["amc23"] * 64 + ["humaneval"] * 2
    )
    assert len({r["seed"] for r in responses}) == len(responses)
    report = json.loads((artifact / "scores.json").read_text())
    assert report["partial"] is True
    assert set(report["benchmarks"]) == {"math500", "amc23", "humaneval"}
    assert "switched off" in report["missing"]["gpqa_diamond"]
    assert report["averages"]["general"]["missing"] == [
        "supergpqa", "mmlu_pro", "bbeh", "gpqa_diamond", "agieval",
    ]  # fmt: skip
    numbers = json.loads((artifact / "result.json").read_text())["metrics"]
    assert (numbers["questions"], numbers["amc23.questions"]) == (2, 2)
    assert numbers["missing_benchmarks"] == 1
