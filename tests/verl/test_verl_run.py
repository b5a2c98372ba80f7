"""One whole outer iteration from the command line, with the real verl, vLLM, Prefect and MLflow.

The Executor that judges the Curriculum's tasks shares the one logical GPU with the training.
"""

import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest
from cpu_settings import CPU, ENVIRONMENT
from verl_world import ROOT, end

DRIVER = ROOT / ".venv" / "bin" / "python"
pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]
SETTINGS = {
    "trainer.verl": CPU,
    "trainer.gpus_per_node": 1,
    "trainer.deadline_seconds": 300,
    "optimiser.kl": "k3",
    "model.tiny.warm_start_steps": 600,
    "rollout.group_size": 4,
    "rollout.temperature": 0.2,
    "curriculum.steps": 2,
    "curriculum.batch_size": 6,
    "executor.steps": 2,
    "evaluation.limit": 8,
    "evaluation.samples": 0,
    "checkpoints.every": 1,
    "gate.min_mean_at_k": 0.0,
    "gate.max_top_answer_share": 1.0,
}


def test_one_outer_iteration(tmp_path: Path) -> None:
    command = [str(DRIVER), "-m", "flows.cli.main", "run", "--profile", "tiny"]
    command += ["--trainer", "verl", "--iterations", "1", "--name", "verl"]
    for key, value in SETTINGS.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    told = {**os.environ, **ENVIRONMENT, "ANCHORLOOP_HOME": str(tmp_path)}
    told["PYTHONPATH"] = os.pathsep.join([str(ROOT), ENVIRONMENT["PYTHONPATH"]])
    with (tmp_path / "output.log").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=told, stdout=output, stderr=output, start_new_session=True
        )
    try:
        code = process.wait(1400)
    finally:
        end(process)
    assert code == 0, (tmp_path / "output.log").read_text()[-4000:]

    results = [
        (path.parent.parent, json.loads(path.read_text()))
        for path in tmp_path.rglob("artifact/result.json")
    ]
    stages = {result["stage"]: (place, result) for place, result in results if result["iteration"]}
    for name in ("curriculum", "executor"):
        place, result = stages[name]
        assert result["steps"] == 2
        steps = [json.loads(x) for x in (place / "work/metrics.jsonl").read_text().splitlines()]
        assert all(s["rollout_correlation"] > 0.999 for s in steps if "loss" in s)
    place, _ = stages["curriculum"]
    said = (place / "work/logs/attempt_1/output.log").read_text()
    # Asleep after its start and after each of two steps, and woken up for each: vLLM says so.
    assert len(re.findall(r"ScoringServer.*sleep mode is not supported on CPU", said)) == 5
    place, result = stages["evaluation"]
    assert result["metrics"]["engine_tokens_per_second"] > 0
    evaluated = result["inputs"]["executor"]["identity"]
    assert evaluated == stages["executor"][0].name, "what was trained is not what was evaluated"

    (database,) = tmp_path.rglob("*mlflow*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select distinct key from metrics").fetchall()
    assert any("curriculum" in key for (key,) in rows)
    assert any("executor" in key for (key,) in rows)
