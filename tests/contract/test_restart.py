"""Computing stages again on purpose, and forks."""

from pathlib import Path

import pytest

from tasks.forks import create_fork
from tasks.restart import start_again
from tasks.runs import RunError, create, driving
from tasks.stage import run_stage
from tests.contract.conftest import starts
from training.config_load import load_config
from training.errors import ConfigError


@pytest.fixture
def finished(stub_home: Path) -> Path:
    create(load_config("tiny", "anchorloop", {"iterations": 2}), "r", "study")
    drive("r")
    (stub_home / "starts.log").unlink()
    return stub_home


def drive(name: str) -> None:
    with driving(name) as run:
        for entry in run.entries:
            run_stage(run, entry)


def restart(from_stage: str | None, force_stage: str | None, asked_by: str = "a") -> None:
    with driving("r") as run:
        start_again(run, from_stage, force_stage, asked_by)
        for entry in run.entries:
            run_stage(run, entry)


def test_from_a_stage_on_all_is_computed_again_from_its_first_step(finished: Path) -> None:
    restart("i2/anchor_cache", None)
    assert starts(finished) == ["anchor_cache:2 from 0", "executor:2 from 0", "evaluation:2 from 0"]


def test_a_forced_stage_is_computed_again_alone(finished: Path) -> None:
    with driving("r") as run:
        place = run.store.place(run.entry(1, "executor").identity)
    restart(None, "i1/executor")
    assert starts(finished) == ["executor:1 from 0"]
    assert (place.root / "artifact.aside-1" / "payload.txt").exists()
    assert (place.root / "work.aside-1" / "metrics.jsonl").exists()


def test_other_bytes_of_a_forced_stage_reach_its_consumers(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_SALT", "another machine")
    restart(None, "i2/task_pool")
    assert [line.split()[0] for line in starts(finished)] == [
        "task_pool:2",
        "anchor_cache:2",
        "executor:2",
        "evaluation:2",
    ]


def test_a_retry_of_the_same_flow_run_keeps_what_it_made(finished: Path) -> None:
    restart(None, "i1/executor", asked_by="a")
    restart(None, "i1/executor", asked_by="a")
    assert starts(finished) == ["executor:1 from 0"]
    restart(None, "i1/executor", asked_by="b")
    assert starts(finished) == ["executor:1 from 0"] * 2


def test_an_unknown_stage_is_refused_before_anything_is_touched(finished: Path) -> None:
    with pytest.raises(RunError, match=r"no stage 'i3/executor'; choose from i0/base_model, "):
        restart("i2/executor", "i3/executor")
    drive("r")
    assert starts(finished) == []


def test_a_fork_shares_what_is_equal(finished: Path) -> None:
    create_fork("r", "f", {"executor": {"alpha": 0.3}})
    drive("f")
    made = [line.split()[0] for line in starts(finished)]
    assert made[:2] == ["executor:1", "evaluation:1"]
    assert "base_model:0" not in made
    assert "curriculum:1" not in made
    with driving("f") as run:
        assert run.settings.forked_from == "r"
        assert run.config.executor.alpha == 0.3


def test_a_fork_is_gone_on_with_or_refused(finished: Path) -> None:
    changes = {"executor": {"alpha": 0.3}}
    assert create_fork("r", "f", changes).uid == create_fork("r", "f", changes).uid
    with pytest.raises(RunError, match=r"another configuration \(executor.alpha: 0.3 → 0.4\)"):
        create_fork("r", "f", {"executor": {"alpha": 0.4}})
    with pytest.raises(RunError, match="needs a --name of its own"):
        create_fork("r", "r", changes)
    with pytest.raises(RunError, match="there is no run 'x' here"):
        create_fork("x", "f", changes)
    with pytest.raises(ConfigError, match="did you mean 'alpha'"):
        create_fork("r", "g", {"executor": {"alpa": 0.3}})
