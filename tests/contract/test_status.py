"""``anchorloop status``: every state of a stage, read from files that stub stages really left."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rich.console import Console

from flows.cli.errors import UserError
from flows.cli.status import status
from flows.cli.status_view import run_page, state_line
from flows.cli.tables import summary_table
from tasks.home import home
from tasks.run_view import RunView, view_run
from tasks.runs import Run, create, driving
from tasks.stage import StageFailed, run_stage
from tasks.summary import write_summary
from tests.contract.conftest import ROOT
from training.config_load import load_config


def new_run(name: str = "r", **overrides: object) -> None:
    create(load_config("tiny", "anchorloop", {"iterations": 1, **overrides}), name, "study")


def all_stages(run: Run) -> None:
    for entry in run.entries:
        run_stage(run, entry)


def view(name: str = "r") -> RunView:
    return view_run(home(), home().run(name))


def states(name: str = "r") -> dict[str, str]:
    return {stage.name: stage.state for stage in view(name).stages}


def shown(name: str = "r") -> list[str]:
    """The page of a run as a wide terminal shows it, blanks run together."""
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(run_page(view(name), "nowhere"))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_a_run_before_during_and_after_a_failure(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run()
    assert (view().state, view().stages) == ("new", [])
    monkeypatch.setenv("STUB_FAIL", "executor:1:numeric!")
    monkeypatch.setenv("STUB_METRICS", json.dumps({"curriculum": {"entropy": 0.0}}))
    with driving("r") as run:
        with pytest.raises(StageFailed) as caught:
            all_stages(run)
        write_summary(run)
    assert list(states()) == [
        "i0/base_model",
        "i0/evaluation",
        "i1/anchor",
        "i1/curriculum",
        "i1/task_pool",
        "i1/anchor_cache",
        "i1/executor",
        "i1/evaluation",
    ]
    assert list(states().values()) == ["computed"] * 6 + ["failed", "waiting"]
    page = shown()
    assert page[0] == (
        "r: stopped, at i1/executor (numeric: the stub's loss became nan); "
        "the same `anchorloop run` goes on"
    )
    assert "├── base model 2 of 2" in page
    assert "└── iteration 1 4 of 6" in page
    by_stage = {line.split("✔ ")[1].split()[0]: line for line in page[6:] if "✔" in line}
    assert "⚠ entropy_collapse" in by_stage["curriculum"]
    assert "← anchor, base_model(i0)" in by_stage["curriculum"]
    assert view().stages[3].identity[:12] in by_stage["curriculum"]
    assert any(line.startswith("│ 0 │ 37.5 │") for line in page)
    assert "i1/curriculum, step 2, soft: the policy hardly varies" in " ".join(page)
    assert "i1/executor, numeric: the stub's loss became nan" in page
    assert caught.value.log_file is not None
    assert f"log: {caught.value.log_file}" in page

    monkeypatch.delenv("STUB_FAIL")
    with driving("r") as run:
        all_stages(run)
    assert view().state == "finished"
    assert set(states().values()) == {"computed"}  # found again by its own run, not reused

    store = home().store
    executor = view().stages[-2]
    (store / executor.identity / "artifact").rename(store / "aside")
    assert states()["i1/executor"] == "removed"
    assert view().state == "finished"
    (store / "aside").rename(store / executor.identity / "artifact")

    new_run("other", iterations=2)
    with driving("other") as run:
        assert states("other")["i0/base_model"] == "there"
        run_stage(run, run.entry(0, "base_model"))
    assert states("other")["i0/base_model"] == "reused"
    assert states("other")["i1/executor"] == "there"
    assert states("other")["i2/anchor"] == "waiting"
    assert state_line(view("other")) == "stopped; the same `anchorloop run` goes on"


def test_a_run_while_it_runs(stub_home: Path) -> None:
    new_run()
    code = """
        from tasks import launchers
        from tasks.runs import driving
        from tasks.stage import run_stage
        stub = lambda: launchers.LocalLauncher("tests.contract.stub_stages")
        launchers.LAUNCHERS["local"] = stub
        with driving("r") as run:
            run_stage(run, run.entry(0, "base_model"))
    """
    environment = {**os.environ, "STUB_STEP_S": "1.5"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as other:
        deadline = time.monotonic() + 120
        while True:
            now = view()
            stage = now.running
            if stage is not None and stage.progress is not None and stage.progress.rate > 0:
                break
            assert time.monotonic() < deadline
            assert other.poll() is None
            time.sleep(0.05)
        line = state_line(now)
        assert line.startswith("running, i0/base_model: ")
        assert "of 4 steps, 0." in line
        assert "steps/s, about " in line
        assert stage.seconds is not None
        status("r", watch=True)  # returns when nothing drives the run any more
        assert other.wait(60) == 0
    assert states()["i0/base_model"] == "computed"


def test_what_is_not_there_is_told_in_a_sentence(stub_home: Path) -> None:
    with pytest.raises(UserError, match="there is no run 'nobody' here"):
        status("nobody", watch=False)
    with pytest.raises(UserError, match="--watch needs the name of a run"):
        status(None, watch=True)


@pytest.mark.parametrize(
    ("method", "older"), [("anchorloop", []), ("anchorloop_every2", [2, 4]), ("agent0", [])]
)
def test_an_anchor_older_than_the_executor_is_said(
    stub_home: Path, method: str, older: list[int]
) -> None:
    create(load_config("tiny", method, {"iterations": 4}), "r", "study")
    with driving("r") as run:
        summary = write_summary(run)
    assert summary["older_anchor"] == older
    caption = summary_table(summary).caption
    assert (caption is None) == (older == [])
    assert not older or "In iteration 2, 4 the anchor is older" in str(caption)
