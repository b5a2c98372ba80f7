"""Real weights through all six stages: SmolLM2-135M-Instruct from its Python package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training.store import Store

ROOT = Path(__file__).parents[2]
ROWS = (("Ann has 3 apples and buys 4 more. How many has she?", "7"), ("What is 6 times 7?", "42"))

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]


def outcome(home: Path, iteration: int, stage: str) -> dict[str, Any]:
    lines = (home / "runs" / "real" / "stages.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return next(o for o in found if (o["iteration"], o["stage"]) == (iteration, stage))


def weights(home: Path, iteration: int, stage: str) -> str:
    manifest = Store(home / ".anchorloop" / "store").verify(
        outcome(home, iteration, stage)["identity"]
    )
    assert manifest is not None
    return str(manifest.files["model/model.safetensors"]["sha256"])


def test_one_iteration_on_real_weights(tmp_path: Path) -> None:
    questions = tmp_path / "gsm8k.jsonl"
    rows = [{"id": f"q{n}", "question": q, "answer": a} for n, (q, a) in enumerate(ROWS)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "flows.cli.main", "run", "--profile", "smollm2"]
    command += ["--name", "real", "--set", f"evaluation.files.gsm8k={questions}"]
    environment = {**os.environ, "ANCHORLOOP_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1400, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    summary = json.loads((tmp_path / "runs" / "real" / "summary.json").read_text(encoding="utf-8"))
    assert [row["iteration"] for row in summary["iterations"]] == [0, 1]
    assert all(0 <= row["greedy"] <= 1 for row in summary["iterations"])
    assert outcome(tmp_path, 1, "task_pool")["metrics"]["tasks"] > 0
    assert outcome(tmp_path, 1, "executor")["metrics"]["groups"] > 0
    assert weights(tmp_path, 1, "curriculum") != weights(tmp_path, 0, "base_model")
