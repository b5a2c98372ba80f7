"""Flows, command line, Prefect and MLflow together, with stub stages in real processes."""

import json
import signal
import time
import urllib.error
from pathlib import Path

import pytest

from tests.integration.flow_world import World, files, history, mlflow_runs

STAGES = 6  # anchor, curriculum, task_pool, anchor_cache, executor, evaluation


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root", stubs=True)


@pytest.mark.timeout(1800)
def test_run_killed_and_started_again_then_once_more(world: World) -> None:
    arguments = (
        "run",
        "--iterations",
        "2",
        "--name",
        "r",
        "--set",
        "optimiser.kl_coefficient=0.02",
    )
    world.killed(
        lambda: "executor:1 from 0" in world.starts,
        *arguments,
        STUB_SLOW="executor",
        STUB_HOLD=str(world.root / "never"),
    )
    done = world.cli(*arguments)
    assert done.returncode == 0, done.stderr
    assert "mean@8 %" in done.stdout
    executor = [line for line in world.starts if line.startswith("executor:1")]
    assert len(executor) == 2
    assert len(world.starts) == 2 + 2 * STAGES + 1  # nothing but the killed stage twice

    rows = world.summary("r")["iterations"]
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert [row["greedy"] for row in rows] == [0.375, 0.5, 0.625]
    assert rows[0]["v_adv"] is None
    assert rows[1]["v_adv"] == 0.125
    assert rows[1]["in_grammar_share"] == 0.875

    runs = mlflow_runs(world.root)
    assert set(runs) == {"r", "r/i0", "r/i1", "r/i2"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    parent = runs["r"]
    assert parent.data.params["optimiser.kl_coefficient"] == "0.02"
    assert history(world.root, parent, "greedy") == [(0, 0.375), (1, 0.5), (2, 0.625)]
    assert len(parent.data.metrics) <= 20
    child = runs["r/i1"]
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert {"method", "backbone", "seed", "iteration", "config_hash"} <= set(child.data.tags)
    assert child.data.tags["reused"] == "none"
    steps = [step for step, _ in history(world.root, child, "executor/loss")]
    assert steps == [0, 1, 2, 3]

    before = world.starts
    again = world.cli(*arguments)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("\n") == done.stdout.count("\n")
    assert world.starts == before
    assert history(world.root, mlflow_runs(world.root)["r"], "greedy")[-1] == (2, 0.625)
    assert world.left() == []


@pytest.mark.timeout(1800)
def test_failures_end_the_run_with_a_sentence_or_are_tried_again(world: World) -> None:
    arguments = ("run", "--iterations", "1", "--name", "r")
    failed = world.cli(*arguments, STUB_FAIL="curriculum:1:numeric!")
    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert "i1/curriculum failed, numeric: the stub's loss became nan" in last
    assert "Traceback" not in failed.stderr
    assert len([line for line in world.starts if line.startswith("curriculum:1")]) == 1
    assert mlflow_runs(world.root)["r"].info.status == "FAILED"
    status = world.cli("status", "r")
    assert "stopped, at i1/curriculum (numeric: the stub's loss became nan)" in status.stdout

    done = world.cli(*arguments, STUB_FAIL="executor:1:infra")  # once: tried again by itself
    assert done.returncode == 0, done.stderr
    assert [s for s in world.starts if s.startswith("executor")] == [
        "executor:1 from 0",
        "executor:1 from 2",
    ]
    assert mlflow_runs(world.root)["r"].info.status == "FINISHED"

    gate = ("--set", "gate.min_mean_at_k=0.9")
    weak = world.cli("run", "--iterations", "1", "--name", "weak", *gate)
    assert weak.returncode == 1
    assert "mean@8 is 0.250" in weak.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--method", "anchorlop"), "method 'anchorlop' does not exist"),
        (("--set", "executor.steps=7"), "K_E) 7 must be a multiple of"),
        (("--set", "executor.stepz=8"), "unknown key 'executor.stepz'"),
        (("--set", "executor.alpha=1.5"), "executor.alpha = 1.5"),
        (("--name", "a/b"), "run name 'a/b' is not usable"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    world: World, arguments: tuple[str, ...], sentence: str
) -> None:
    done = world.cli("run", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("anchorloop: ")
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (world.root / ".anchorloop" / "services.json").exists()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_everything(world: World, number: signal.Signals) -> None:
    seen = []

    def executor_runs() -> bool:
        if "executor:1 from 0" not in world.starts:
            return False
        seen.append(" ".join(world.cli("status").stdout.split()))
        return "i1/executor: 0 of 4 steps" in seen[-1]

    never = str(world.root / "never")
    arguments = ("run", "--iterations", "1", "--name", "r")
    status = world.signalled(
        number, executor_runs, *arguments, STUB_SLOW="executor", STUB_HOLD=never
    )
    assert status == 130
    assert "running" in seen[-1]
    assert "the same command goes on with run 'r'" in (world.root / "killed.log").read_text()
    assert world.left() == []
    assert mlflow_runs(world.root)["r"].info.status == "KILLED"
    assert "stopped" in world.cli("status").stdout


@pytest.mark.timeout(1800)
def test_deployments_by_the_worker_and_zombies(world: World) -> None:
    began: list[float] = []

    def curriculum_runs() -> bool:
        """For some moments: Prefect hears later of a task's start."""
        if "curriculum:1 from 0" in world.starts:
            began.append(time.monotonic())
        return bool(began) and began[-1] - began[0] > 3

    never = str(world.root / "never")
    arguments = ("run", "--iterations", "1", "--name", "r")
    world.killed(curriculum_runs, *arguments, STUB_SLOW="curriculum", STUB_HOLD=never)
    flat = json.dumps({"executor": {"entropy": 0.0}})
    with world.servers(STUB_SLOW="executor", STUB_STEP_S="2", STUB_METRICS=flat) as prefect:
        # Nobody told Prefect; `up` closes what is older than a minute.
        assert prefect.states("flow_runs", "r") in (["Running"], ["Crashed"])
        asked = {"name": "r", "iterations": 1, "overrides": {}}
        run = prefect.trigger("experiment/experiment", asked)
        assert run["state_type"] == "COMPLETED", run["state"]
        assert prefect.states("flow_runs", "r") == ["Completed", "Crashed"]
        assert prefect.states("task_runs", "r/i0/base_model") == ["Completed", "Reused"]
        assert prefect.states("task_runs", "r/i1/curriculum") == ["Completed", "Crashed"]
        assert prefect.states("task_runs", "r/i1/executor") == ["Completed"]
        artifacts = {a["key"]: a for a in prefect.call("/artifacts/filter", {})}
        rows = json.loads(artifacts["r-i1"]["data"])
        assert [row["stage"] for row in rows][-1] == "evaluation"
        assert rows[-1]["numbers"].startswith("greedy 0.5, mean_at_8 0.375")
        assert rows[-2]["alarms"] == 1
        tables = [a for a in artifacts.values() if a["type"] == "table"]
        assert {a["key"] for a in tables} == {"r-i0", "r-i1"}
        assert "entropy_collapse" in artifacts["r-i1-executor-alarms"]["data"]
        there = artifacts["r-i0-base-model-artifact"]["data"]
        assert f"file://{world.artifact(world.identity('r', 'i0/base_model'))}" in there
        bar = artifacts["r-i1-executor"]
        assert (bar["type"], float(bar["data"])) == ("progress", 100.0)
        assert {artifacts[key]["type"] for key in ("r-mlflow", "r-i1-mlflow")} == {"markdown"}

        again = prefect.trigger("iteration/iteration", {"run": "r", "iteration": 1})
        assert again["state_type"] == "COMPLETED"
        absent = prefect.trigger("iteration/iteration", {"run": "r", "iteration": 2})
        assert absent["state_type"] == "FAILED"
        assert "has iterations 0 to 1, not 2" in absent["state"]["message"]
        scores = {"run": "r", "iteration": 1, "settings": {"limit": 5}}
        evaluated = prefect.trigger("evaluate/evaluate", scores)
        assert evaluated["state_type"] == "COMPLETED", evaluated["state"]
        wrong = {"overrides": {"executor": {"steps": 7}}}
        refused = prefect.trigger("experiment/experiment", wrong)
        assert refused["state_type"] == "FAILED"
        assert refused["state"]["message"] == (
            "executor.steps (K_E) 7 must be a multiple of curriculum.steps (K_C) 4"
        )
        with pytest.raises(urllib.error.HTTPError) as unknown:
            prefect.start("experiment/experiment", {"profil": "tiny"})
        assert "('profil' was unexpected)" in unknown.value.read().decode()
        assert prefect.call("/work_pools/anchorloop/queues/machine")["concurrency_limit"] == 1
        for name in ("experiment", "fork", "iteration", "evaluate"):
            deployment = prefect.call(f"/deployments/name/{name}/{name}")
            assert deployment["work_queue_name"] == "machine"
            assert (deployment["paused"], deployment["schedules"]) == (False, [])
            assert deployment["parameter_openapi_schema"]["additionalProperties"] is False

        status = world.cli("status").stdout
        assert "finished" in status
        assert prefect.url in status
    runs = mlflow_runs(world.root)
    assert {"r", "r/i0", "r/i1"} < set(runs)
    assert any(name.startswith("r/i1/evaluation-") for name in runs)
    tags = runs["r"].data.tags
    page = f"{prefect.url}/runs/flow-run/{tags['prefect_flow_run_id']}"
    assert tags["prefect_url"] == page
    assert f"({page})" in tags["mlflow.note.content"]
    for name in ("r", "r/i1"):
        assert "the policy hardly varies" in runs[name].data.tags["alarm.entropy_collapse"]
    assert files(world.root, runs["r"], "figures") == ["figures/accuracy.png"]
    assert files(world.root, runs["r/i1"], "figures") == ["figures/i1.png"]
    assert history(world.root, runs["r"], "greedy") == [(0, 0.375), (1, 0.5)]
    assert world.left() == []


def test_a_missing_model_is_refused_before_anything_runs(world: World) -> None:
    model = ("--set", "model.source=folder", "--set", "model.name=/no/such/folder")
    done = world.cli("run", *model)
    assert done.returncode == 2
    assert done.stderr.startswith("anchorloop: the model cannot be had: model.name '/no/such")
    assert world.starts == []
    assert world.left() == []


def test_down_and_status_with_nothing_there(world: World) -> None:
    assert "nothing was running" in world.cli("down").stdout
    assert "no runs here yet" in world.cli("status").stdout


def test_a_stranger_with_a_remembered_process_id_is_left_alone(world: World) -> None:
    import subprocess

    with subprocess.Popen(["sleep", "60"]) as stranger:
        state = world.root / ".anchorloop"
        state.mkdir()
        entry = {"name": "mlflow", "pid": stranger.pid, "ticks": 1, "port": 1, "url": "", "log": ""}
        content = {"services": {"mlflow": entry}, "ports": {}}
        (state / "services.json").write_text(json.dumps(content))
        assert "nothing was running" in world.cli("down").stdout
        assert stranger.poll() is None
        stranger.kill()
