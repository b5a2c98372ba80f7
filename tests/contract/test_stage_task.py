"""run_stage: reuse, launch, resume, typed failures; with stub stages in real processes."""

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tasks.runs import Run, RunError, create, driver, driving
from tasks.stage import StageFailed, run_stage
from tasks.watch import Progress, StepTail, read_alarms
from tests.contract.conftest import ROOT, let_go, starts, when_waiting
from training.algorithms.alarms import Alarm
from training.config_load import load_config


def new_run(name: str = "r", **overrides: object) -> None:
    create(load_config("tiny", "anchorloop", {"iterations": 1, **overrides}), name, "study")


def refuse(name: str) -> None:
    """The run asked again, now not to wait for anybody."""
    create(load_config("tiny", "anchorloop", {"iterations": 1}), name, "study", on_busy="refuse")


def all_stages(run: Run) -> None:
    for entry in run.entries:
        run_stage(run, entry)


def test_runs_every_stage_once_and_reuses_it_afterwards(stub_home: Path) -> None:
    new_run()
    with driving("r") as run:
        all_stages(run)
        made = starts(stub_home)
        assert len(made) == len(run.entries)
        outcomes = [run_stage(run, entry) for entry in run.entries]
    assert starts(stub_home) == made
    assert all(outcome.reused for outcome in outcomes)
    assert all(outcome.cost_seconds > 0 for outcome in outcomes)


def test_a_run_of_another_name_shares_what_is_equal(stub_home: Path) -> None:
    new_run("one")
    new_run("two", iterations=2)
    with driving("one") as run:
        all_stages(run)
    before = len(starts(stub_home))
    with driving("two") as run:
        all_stages(run)
        assert run.reused(1) == [entry.spec.stage for entry in run.iteration(1)]
        assert run.reused(2) == []
        assert len(starts(stub_home)) - before == len(run.iteration(2))


@pytest.mark.parametrize("damage", ["truncate", "delete"])
def test_a_damaged_or_missing_artifact_is_made_again(stub_home: Path, damage: str) -> None:
    new_run()
    with driving("r") as run:
        all_stages(run)
        entry = run.entry(1, "task_pool")
        file = run.store.place(entry.identity).artifact / "payload.txt"
        original = file.read_bytes()
        if damage == "truncate":
            file.write_bytes(original[:-1])
        else:
            file.unlink()
        outcome = run_stage(run, entry)
        assert not outcome.reused
        assert file.read_bytes() == original
        assert run_stage(run, run.entry(1, "executor")).reused  # same bytes: still good


def test_a_consumer_of_other_bytes_is_made_again(stub_home: Path) -> None:
    new_run()
    with driving("r") as run:
        all_stages(run)
        entry = run.entry(1, "executor")
        result = run.store.place(entry.identity).artifact / "result.json"
        raw = json.loads(result.read_text())
        raw["inputs"]["task_pool"]["payload_sha256"] = "0" * 64
        manifest = result.with_name("manifest.json")
        content = json.loads(manifest.read_text())
        result.write_text(json.dumps(raw))
        import hashlib

        content["files"]["result.json"] = {
            "size": result.stat().st_size,
            "sha256": hashlib.sha256(result.read_bytes()).hexdigest(),
        }
        manifest.write_text(json.dumps(content))
        assert run.store.verify(entry.identity) is not None
        assert not run_stage(run, entry).reused
        assert run_stage(run, entry).reused


@pytest.mark.parametrize("kind", ["infra", "config", "numeric", "out_of_memory", "bug"])
def test_failures_are_typed(stub_home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("STUB_FAIL", f"base_model:0:{kind}!")
    new_run()
    with (
        driving("r") as run,
        pytest.raises(StageFailed, match=f"i0/base_model failed, {kind}: ") as e,
    ):
        run_stage(run, run.entry(0, "base_model"))
    assert e.value.kind == kind
    assert "stub" in str(e.value)
    assert e.value.log_file is not None
    assert e.value.log_file.exists()


def test_an_old_failure_is_not_taken_for_a_new_one(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run()
    with driving("r") as run:
        entry = run.entry(0, "base_model")
        monkeypatch.setenv("STUB_FAIL", "base_model:0:numeric!")
        with pytest.raises(StageFailed, match="numeric"):
            run_stage(run, entry)
        monkeypatch.setenv("STUB_LOG", str(stub_home))  # a folder: dies before it can say why
        monkeypatch.setattr(run.launcher, "_module", "tests.contract.no_such_module")
        with pytest.raises(StageFailed, match="ended with status 1 and left no reason") as caught:
            run_stage(run, entry)
    assert caught.value.kind == "bug"


def test_resumes_from_the_checkpoint_and_sends_each_point_once(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAIL", "executor:1:infra")
    new_run()
    with driving("r") as run:
        with pytest.raises(StageFailed):
            all_stages(run)
        run_stage(run, run.entry(1, "executor"))
        entries = [e for e, _ in run.tracker.journal.entries(0) if e["part"] == "i1"]
    assert [s for s in starts(stub_home) if "executor" in s] == [
        "executor:1 from 0",
        "executor:1 from 2",
    ]
    steps = [
        entry["step"]
        for entry in entries
        if entry["op"] == "metrics" and "executor/loss" in entry["values"]
    ]
    assert steps == [0, 1, 2, 3]
    assert not any("not_listed" in key for e in entries for key in e.get("values", {}))


def test_a_reused_stage_replays_its_metrics_into_a_new_run(stub_home: Path) -> None:
    new_run("one")
    new_run("two", iterations=2)
    with driving("one") as run:
        all_stages(run)
    with driving("two") as run:
        assert run_stage(run, run.entry(0, "base_model")).reused
        entries = [e for e, _ in run.tracker.journal.entries(0)]
    assert [e["step"] for e in entries if e["op"] == "metrics"] == [0, 1, 2, 3]


def test_a_stage_that_takes_too_long_is_ended(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_STEP_S", "60")
    config = load_config("tiny", "anchorloop", {"iterations": 1})
    create(config, "r", "study", stage_hours=1e-9)
    with driving("r") as run, pytest.raises(StageFailed, match="ran longer than") as caught:
        run_stage(run, run.entry(0, "base_model"))
    assert caught.value.kind == "interrupted"


def test_progress_is_shown(stub_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = stub_home / "hold"
    monkeypatch.setenv("STUB_HOLD", str(hold))
    new_run()
    seen: list[Progress] = []

    def show(progress: Progress) -> None:
        seen.append(progress)
        let_go(hold, int(progress.done))

    with driving("r") as run:
        run_stage(run, run.entry(0, "base_model"), show)
    assert seen[-1].share == 1.0
    assert sorted({progress.done for progress in seen}) == [0, 1, 2, 3, 4]
    assert str(seen[-1]).startswith("4 of 4 steps")


FLAT = json.dumps({"executor": {"entropy": 0.0}})


def tags(run: Run) -> dict[tuple[str, str], str]:
    told = [entry for entry, _ in run.tracker.journal.entries(0) if entry["op"] == "tags"]
    return {(e["part"], key): value for e in told for key, value in e["tags"].items()}


def test_an_alarm_reaches_the_log_mlflow_and_prefect_and_a_reused_stage_repeats_it(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STUB_METRICS", FLAT)
    caplog.set_level(logging.WARNING, "anchorloop")
    said = "i1/executor, step 2, soft: the policy hardly varies for 3 steps in a row (entropy is 0)"
    for name in ("r", "s"):
        seen: list[Alarm] = []
        new_run(name)
        with driving(name) as run:
            for entry in run.entries:
                outcome = run_stage(run, entry, warn=seen.append)
                assert outcome.alarms == (entry.name == "i1/executor")
                assert outcome.reused == (name == "s")
            assert tags(run)["i1", "alarm.entropy_collapse"] == said
            assert tags(run)["parent", "alarm.entropy_collapse"] == said
        assert [(alarm.step, alarm.name) for alarm in seen] == [(2, "entropy_collapse")]
    warned = [record.getMessage() for record in caplog.records if "alarm" in record.getMessage()]
    assert len(warned) == 2
    assert "soft alarm entropy_collapse at i1/executor, step 2: the policy" in warned[0]


def test_a_hard_alarm_stops_the_stage_and_leaves_no_artifact(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_METRICS", FLAT)
    new_run(alarms={"stop_after": 4})
    with driving("r") as run:
        with pytest.raises(StageFailed, match="collapsed at step 3: the policy hardly") as caught:
            all_stages(run)
        assert caught.value.kind == "numeric"
        place = run.store.place(run.entry(1, "executor").identity)
        assert not place.artifact.exists()
        assert [alarm.level for alarm in read_alarms(place.work)] == ["soft", "hard"]
    new_run("fork", alarms={"stop_after": 0})  # the same identities: goes on from the checkpoint
    with driving("fork") as run:
        all_stages(run)
    assert [s for s in starts(stub_home) if "executor" in s] == [
        "executor:1 from 0",
        "executor:1 from 3",
    ]


def test_only_one_process_drives_a_run(stub_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "anchorloop")
    new_run()
    code = """
        import sys, time
        from tasks.runs import driving
        with driving("r"):
            print("driving", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "driving"
        assert driver(stub_home / "runs" / "r") == other.pid
        refuse("r")
        with pytest.raises(RunError, match=f"already driven by process {other.pid}"), driving("r"):
            pass
        new_run()
        when_waiting(caplog, other.kill)
        with driving("r") as run:
            assert other.wait(10) == -signal.SIGKILL
            assert run.name == "r"
    assert f"run 'r' is already driven by process {other.pid}; waiting for it" in caplog.text
    assert driver(stub_home / "runs" / "r") is None


def test_a_stage_that_another_run_computes_is_waited_for(
    stub_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anchorloop")
    hold = stub_home / "hold"
    new_run("one")
    new_run("two")
    code = """
        from tasks import launchers
        from tasks.runs import driving
        from tasks.stage import run_stage
        stub = lambda: launchers.LocalLauncher("tests.contract.stub_stages")
        launchers.LAUNCHERS["local"] = stub
        with driving("one") as run:
            run_stage(run, run.entry(0, "base_model"))
    """
    environment = {**os.environ, "STUB_HOLD": str(hold)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as other:
        deadline = time.monotonic() + 60
        while not starts(stub_home):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        refuse("two")
        with driving("two") as run, pytest.raises(StageFailed, match="computed by process") as no:
            run_stage(run, run.entry(0, "base_model"))
        assert no.value.kind == "interrupted"
        new_run("two")
        when_waiting(caplog, lambda: let_go(hold))
        with driving("two") as run:
            outcome = run_stage(run, run.entry(0, "base_model"))
        assert other.wait(60) == 0
    assert outcome.reused
    assert starts(stub_home) == ["base_model:0 from 0"]


def test_another_configuration_under_the_same_name_is_refused(stub_home: Path) -> None:
    new_run()
    new_run()
    with pytest.raises(RunError, match=r"another configuration \(seed: 0 → 1\)"):
        new_run(seed=1)


def test_changed_code_is_announced_and_computed_again(
    stub_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new_run()
    with driving("r") as run:
        all_stages(run)
    plan = stub_home / "runs" / "r" / "plan.json"
    content = json.loads(plan.read_text())
    content["i1/executor"]["code"] = "0" * 64
    plan.write_text(json.dumps(content))
    with driving("r") as run:
        assert "changed since run 'r' began: code of i1/executor" in caplog.text
        assert "adopt STAGE --run r" in caplog.text
        all_stages(run)
    caplog.clear()
    with driving("r"):
        pass
    assert "changed" not in caplog.text


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "x" * 101])
def test_run_names_stay_inside_the_folder(stub_home: Path, name: str) -> None:
    with pytest.raises(RunError, match="run name"):
        new_run(name)


def test_metrics_tail_reads_whole_lines_and_notices_a_cut(tmp_path: Path) -> None:
    seen: list[int] = []
    path = tmp_path / "metrics.jsonl"
    tail = StepTail(path, lambda step, _values: seen.append(step))
    tail.read()
    path.write_text('{"step": 0, "x": 1}\n{"step": 1, "x"')
    tail.read()
    assert seen == [0]
    with path.open("a") as file:
        file.write(': 1}\nnot json\n{"step": 2}\n')
    tail.read()
    assert seen == [0, 1, 2]
    cut = tmp_path / "cut"
    cut.write_text('{"step": 0, "x": 1}\n{"step": 1, "x": 1}\n')
    cut.replace(path)
    tail.read()
    assert seen == [0, 1, 2, 0, 1]
