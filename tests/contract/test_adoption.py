"""Adopting artifacts after a change of code."""

import json
from pathlib import Path

import pytest

from tasks.adoption import adopt_stage
from tasks.runs import RunError, create, driving
from tasks.stage import run_stage
from tests.contract.conftest import starts
from training.config_load import load_config
from training.fingerprint import code_fingerprint


def change_code(monkeypatch: pytest.MonkeyPatch, *stages: str) -> None:
    """As if the code of these stages (and of them alone) had changed."""

    def changed(stage: str, *backend: str) -> str:
        code = code_fingerprint(stage, *backend)
        return code[::-1] if stage.rpartition(".")[2] in stages else code

    monkeypatch.setattr("training.plan.code_fingerprint", changed)


@pytest.fixture
def finished(stub_home: Path) -> Path:
    create(load_config("tiny", "anchorloop", {"iterations": 1}), "r", "study")
    with driving("r") as run:
        for entry in run.entries:
            run_stage(run, entry)
    return stub_home


def test_adopted_stage_and_all_behind_it_are_reused(
    finished: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = starts(finished)
    change_code(monkeypatch, "task_pool")
    with driving("r"):
        assert "code of i1/task_pool" in caplog.text
    adopted = adopt_stage("r", "task_pool", "a variable got another name")
    assert [name for name, _, _ in adopted] == [
        "i1/task_pool",
        "i1/anchor_cache",
        "i1/executor",
        "i1/evaluation",
    ]
    with driving("r") as run:
        assert all(run_stage(run, entry).reused for entry in run.entries)
        place = run.store.place(run.entry(1, "task_pool").identity)
        record = json.loads((place.root / "adopted.json").read_text())
    assert starts(finished) == before
    assert record["reason"] == "a variable got another name"
    assert record["code"]["old"] == record["code"]["new"][::-1]
    assert adopt_stage("r", "task_pool", "again") == []


def test_other_changed_stages_are_held_back(
    finished: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    change_code(monkeypatch, "task_pool", "executor")
    adopted = adopt_stage("r", "task_pool", "harmless")
    assert [name for name, _, _ in adopted] == ["i1/task_pool", "i1/anchor_cache"]
    with driving("r"):
        assert "code of i1/executor" in caplog.text
    assert [name for name, _, _ in adopt_stage("r", "all", "harmless too")] == [
        "i1/executor",
        "i1/evaluation",
    ]
    with driving("r") as run:
        assert all(run_stage(run, entry).reused for entry in run.entries)


def test_more_than_code_is_not_adopted(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_code(monkeypatch, "executor")
    monkeypatch.setattr("training.plan.library_versions", lambda: {"torch": "0.0"})
    with pytest.raises(RunError, match="cannot be adopted: its libraries changed too"):
        adopt_stage("r", "executor", "harmless")


def test_unknown_stage_and_run_are_refused(finished: Path) -> None:
    with pytest.raises(RunError, match="there is no stage 'pool'"):
        adopt_stage("r", "pool", "x")
    with pytest.raises(RunError, match="there is no run 'other'"):
        adopt_stage("other", "executor", "x")
