"""Cleaning up for real: stages in processes, a real MLflow store, kills in the middle."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tasks import launchers, leftovers
from tasks.home import home
from tasks.left_containers import OurContainer
from tasks.maintenance import Survey, Wanted, carry_out, survey
from tasks.retention import KINDS, Deletion, Kind
from tasks.runs import create, driving
from tasks.stage import run_stage
from tasks.tracking import PARENT, child
from tests.contract.conftest import ROOT, starts
from training.config_load import load_config
from training.locking import try_exclusive
from training.sandbox.isolation import bubblewrap, bubblewrap_problem
from training.store import write_atomic

STORE_KINDS: tuple[Kind, ...] = ("weights", "raw", "checkpoints", "damaged", "torn")


def new_run(name: str = "r", method: str = "agent0", iterations: int = 3) -> None:
    create(load_config("tiny", method, {"iterations": iterations}), name, "study")


def compute(name: str = "r") -> None:
    with driving(name) as run:
        for entry in run.entries:
            run_stage(run, entry)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with two finished runs: "r" has no anchors, "anchored" has."""
    root = tmp_path_factory.mktemp("computed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANCHORLOOP_HOME", str(root))
        patch.setenv("STUB_LOG", str(root / "starts.log"))
        patch.delenv("STUB_FAIL", raising=False)
        stub = launchers.LocalLauncher("tests.contract.stub_stages")
        patch.setitem(launchers.LAUNCHERS, "local", lambda: stub)
        for name, method in (("r", "agent0"), ("anchored", "anchorloop")):
            new_run(name, method)
            compute(name)
    return root


@pytest.fixture
def finished(stub_home: Path, computed: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(computed, stub_home, dirs_exist_ok=True)
    (stub_home / ".anchorloop" / "store" / "users").unlink()
    home().announce()
    return stub_home


def clean(*kinds: Kind, days: float = 30.0) -> Survey:
    """List and delete; every deletion must go through."""
    listed = survey(home(), Wanted(kinds or STORE_KINDS, damaged_days=days), full=True)
    outcomes: list[str] = []
    carry_out(home(), listed, lambda _deletion, outcome: outcomes.append(outcome))
    assert set(outcomes) <= {"done"}
    return listed


def named(listed: Survey, kind: Kind) -> list[str]:
    return sorted(d.what.split()[2] for d in listed.deletions if d.kind == kind)


def test_a_finished_run_is_smaller_afterwards_and_still_finished(finished: Path) -> None:
    before = starts(finished)
    dry = survey(home(), Wanted(STORE_KINDS))
    assert named(dry, "weights") == ["i1/curriculum", "i1/curriculum", "i1/executor"]
    size = sum(
        p.stat().st_size for p in (finished / ".anchorloop" / "store").rglob("*") if p.is_file()
    )
    listed = clean()
    assert listed.deletions == dry.deletions
    left = sum(
        p.stat().st_size for p in (finished / ".anchorloop" / "store").rglob("*") if p.is_file()
    )
    assert left < size - sum(d.bytes for d in listed.deletions) / 2

    with driving("r") as run:
        assert run.must_run() == set()
        assert all(run_stage(run, entry).reused for entry in run.entries)
        curriculum = run.store.place(run.entry(1, "curriculum").identity)
        pool = run.store.place(run.entry(3, "task_pool").identity)
        names = {p.name for p in curriculum.work.iterdir()}
    assert starts(finished) == before
    assert names == {"metrics.jsonl", "progress.json", "logs"}
    assert not (curriculum.artifact / "model" / "weights.bin").exists()
    ledger = [
        json.loads(x) for x in (curriculum.artifact / "ledger.jsonl").read_text().split("\n")[:-1]
    ]
    assert len(ledger) == 300
    assert ledger[0]["r_c"] == 0.5
    assert "text" not in ledger[0]
    assert len((pool.artifact / "sample.jsonl").read_text().splitlines()) == 200
    assert not (pool.artifact / "tasks.jsonl").exists()
    assert survey(home(), Wanted(STORE_KINDS)).deletions == []


def test_what_went_is_computed_again_with_a_warning_where_it_is_needed(
    finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clean("weights")
    with driving("r") as run:
        victim = run.entry(2, "executor")  # its input, executor of i1, was retired
        last = run.store.place(run.entry(2, "evaluation").identity).artifact
        for path in (run.store.place(victim.identity).artifact, last):
            path.rename(path.with_name("gone"))
        made = len(starts(finished))
        for entry in run.entries:
            run_stage(run, entry)
        again = [line.split()[0] for line in starts(finished)[made:]]
    assert again == ["executor:1", "executor:2", "evaluation:2"]
    assert "i1/executor was retired in part by `anchorloop clean`" in caplog.text


def test_a_run_that_shares_stages_keeps_what_it_needs(finished: Path) -> None:
    new_run("short", iterations=1)
    new_run("long", iterations=5)
    for name in ("short", "long"):
        with driving(name) as run:
            for entry in run.entries:
                if entry.spec.iteration < 4:
                    run_stage(run, entry)
    assert named(clean(), "weights") == ["i1/curriculum"]  # of "anchored"; "short" keeps its own
    made = len(starts(finished))
    compute("long")
    again = starts(finished)[made:]
    assert {line.split(":")[1][0] for line in again} == {"4", "5"}


def test_a_stage_in_work_and_a_damaged_survivor_are_left_alone(finished: Path) -> None:
    with driving("r") as run:
        store, held = run.store, run.entry(1, "executor").identity
        survivor = run.entry(3, "executor")
    listed = survey(home(), Wanted(("weights",)), full=True)
    outcomes = {}
    with store.hold(held):
        carry_out(home(), listed, lambda d, outcome: outcomes.update({d.identity: outcome}))
    assert outcomes.pop(held) == "in use; left alone"
    assert set(outcomes.values()) == {"done"}

    # One byte of what replaced the older weights flips, with size and time as they were: the full
    # check sees it, and the two newest that are whole stay.
    weights = store.place(survivor.identity).artifact / "model" / "weights.bin"
    stat = weights.stat()
    content = weights.read_bytes()
    weights.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert survey(home(), Wanted(("weights",))).deletions != []
    now = survey(home(), Wanted(("weights",)), full=True)
    assert not {held, survivor.spec.inputs["executor"]} & {d.identity for d in now.deletions}


KILLED = """
    import os, shutil, sys
    from pathlib import Path
    from tasks import deletion
    from tasks.home import home
    from tasks.maintenance import Wanted, carry_out, survey

    moment, count = sys.argv[1], int(sys.argv[2])

    def dies(call):
        def wrapper(*arguments, **more):
            global count
            count -= 1
            if count == 0:
                os.kill(os.getpid(), 9)
            return call(*arguments, **more)
        return wrapper

    module = {"rmtree": shutil, "unlink": Path, "rename": Path, "write_atomic": deletion,
              "retire": deletion.Store}[moment]
    setattr(module, moment, dies(getattr(module, moment)))
    kinds = ("weights", "raw", "checkpoints", "damaged", "torn")
    listed = survey(home(), Wanted(kinds, damaged_days=0), full=True)
    carry_out(home(), listed, lambda *_: None)
"""


def test_a_kill_at_any_moment_of_a_deletion_leaves_nothing_wrong(finished: Path) -> None:
    made = starts(finished)
    with driving("anchored") as run:
        store = run.store
        pinned = [e.spec.inputs["executor"] for e in run.entries if e.spec.stage == "anchor"]
    script = finished / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    kills = 0
    moments = ["retire", "rename", "unlink", "write_atomic", "rename"]
    for number, moment in enumerate([*moments, *moments]):
        command = [sys.executable, str(script), moment, str(1 + number % 3)]
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=120)
        assert done.returncode in (0, -signal.SIGKILL)
        kills += done.returncode != 0
        for name in ("anchored", "r"):
            with driving(name) as run:
                assert run.must_run() == set()
        for identity in pinned:
            manifest = store.verify(identity, full=True)
            assert manifest is not None
            assert not manifest.retired
    assert kills >= 6
    clean(*STORE_KINDS, days=0)
    assert survey(home(), Wanted(STORE_KINDS, damaged_days=0)).deletions == []
    assert list((store.root / leftovers.TRASH).iterdir()) == []
    for name in ("anchored", "r"):
        compute(name)
    assert starts(finished) == made


def test_files_that_a_killed_process_left_go_when_they_are_old(finished: Path) -> None:
    with driving("r") as run:
        place = run.store.place(run.entry(1, "executor").identity)
        folder = run.folder
    torn = [place.root / ".verified.json.4711", folder / ".summary.json.4711"]
    torn += [folder / "tracking" / "state.new"]
    for path in torn:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    aside = place.root / "artifact.aside-1"
    aside.mkdir()
    (aside / "x").write_text("old bytes")
    assert clean("torn", "damaged").deletions == []  # all of it may still be wanted
    old = time.time() - 2 * leftovers.TORN_S
    for path in torn:
        os.utime(path, (old, old))
    assert {d.path for d in clean("torn", "damaged", days=0).deletions} == {*torn, aside}
    assert not any(path.exists() for path in [*torn, aside])


def test_a_temporary_folder_goes_when_its_owner_is_gone(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(stub_home / "tmp"))
    (stub_home / "tmp").mkdir()
    script = (
        "import tempfile, time; tempfile.tempdir = {!r}\n"
        "from training.sandbox.worker import _private_folder\n"
        "print(_private_folder()[0], flush=True); time.sleep(600)"
    ).format(str(stub_home / "tmp"))
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        (folder / "run").mkdir()
        old = time.time() - 2 * leftovers.TORN_S
        os.utime(folder, (old, old))
        mine = lambda: [d for d in leftovers.temporary() if d.path == folder]  # noqa: E731
        assert mine() == []
        owner.kill()
    assert [d.reason for d in mine()] == ["its owner is gone"]
    listed = Survey(mine(), [])
    carry_out(home(), listed, lambda *_: None)
    assert list((stub_home / "tmp").iterdir()) == []


def test_a_sandbox_that_waits_for_a_dead_starter_ends_with_its_folder(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bubblewrap_problem() is not None:
        pytest.skip(str(bubblewrap_problem()))
    monkeypatch.setattr("tempfile.tempdir", str(stub_home / "tmp"))
    folder = stub_home / "tmp" / "anchorloop-box-killed"
    (folder / "run").mkdir(parents=True)
    info, told = os.pipe()
    blocked, release = os.pipe()
    command = [str(bubblewrap()), "--die-with-parent", "--unshare-user", "--ro-bind", "/", "/"]
    command += ["--ro-bind", str(folder / "run"), "/mnt", "sleep", "600"]
    command[1:1] = ["--info-fd", str(told), "--userns-block-fd", str(blocked)]
    with subprocess.Popen(command, pass_fds=[told, blocked]) as starter:
        os.close(told)
        with os.fdopen(info) as described:
            waiting = Path("/proc") / str(json.loads(described.read())["child-pid"])
        starter.kill()

    def alive() -> bool:
        try:
            return "bwrap" in (waiting / "cmdline").read_text()
        except OSError:
            return False

    assert alive()
    old = time.time() - 2 * leftovers.TORN_S
    os.utime(folder, (old, old))
    carry_out(home(), Survey(list(leftovers.temporary()), []), lambda *_: None)
    assert not folder.exists()
    deadline = time.monotonic() + 30
    while alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for descriptor in (blocked, release):
        os.close(descriptor)


def test_mlflow_runs_of_a_killed_driver_end_as_killed(stub_home: Path) -> None:
    from mlflow.tracking import MlflowClient

    new_run(iterations=1)
    script = (
        "import os, signal\n"
        "from tasks.runs import driving\n"
        "with driving('r') as run:\n"
        "    run.tracker.open('parent', 'r', {})\n"
        "    run.tracker.open('i0', 'r/i0', {})\n"
        "    run.tracker.end('i0', 'FINISHED')\n"
        "    run.tracker.open('i1', 'r/i1', {})\n"
        "    run.tracker._sender.finish(180)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, timeout=200)
    assert done.returncode == -signal.SIGKILL

    def states() -> dict[str, str]:
        client = MlflowClient(tracking_uri=home().tracking_uri)
        experiment = client.get_experiment_by_name("study")
        found = client.search_runs([experiment.experiment_id])
        return {run.info.run_name: run.info.status for run in found}

    assert states() == {"r": "RUNNING", "r/i0": "FINISHED", "r/i1": "RUNNING"}
    with driving("r"):
        assert survey(home(), Wanted(("tracking",))).deletions == []  # somebody drives it
    listed = clean("tracking")
    reason = f"{PARENT}, {child(1)} shown as running; nobody drives the run"
    assert listed.deletions == [Deletion("tracking", "r", 0, reason)]
    assert states() == {"r": "KILLED", "r/i0": "FINISHED", "r/i1": "KILLED"}
    assert survey(home(), Wanted(("tracking",))).deletions == []


@pytest.mark.timeout(60)
def test_a_run_that_somebody_drives_by_now_is_passed_over(stub_home: Path) -> None:
    new_run()  # its own on_busy is to wait
    listed = Survey([Deletion("tracking", "r", 0, "nobody drove it when it was listed")], [])
    outcomes: list[str] = []
    with (stub_home / "runs" / "r" / "driver.lock").open("a+") as handle:
        assert try_exclusive(handle.fileno())
        carry_out(home(), listed, lambda _deletion, outcome: outcomes.append(outcome))
    assert outcomes == ["in use; left alone"]


def test_what_an_evaluation_on_demand_reads_stays_meanwhile(finished: Path) -> None:
    with driving("r") as run:
        executor = run.entry(1, "executor").identity
        spec = replace(run.entry(1, "evaluation").spec, seed=7)
        place = run.store.place(spec.identity)
        place.root.mkdir()
        spec.save(place.spec)
        write_atomic(run.folder / "current.json", json.dumps({"identity": spec.identity}))
        listed = survey(home(), Wanted(("weights",)))
        assert executor not in {d.identity for d in listed.deletions}
    listed = survey(home(), Wanted(("weights",)))
    assert executor in {d.identity for d in listed.deletions}


def test_stages_of_a_deleted_run_go_only_when_named(finished: Path) -> None:
    with driving("r") as run, driving("anchored") as other:
        store, gone = run.store, {entry.identity for entry in run.entries}
        kept = {entry.identity for entry in other.entries}
    assert gone & kept, "the runs share their base"
    assert survey(home(), Wanted()).notes == []
    shutil.rmtree(finished / "runs" / "r")
    usual = survey(home(), Wanted())
    assert "unclaimed" not in {deletion.kind for deletion in usual.deletions}
    (note,) = usual.notes
    assert "MB are of stages that no run names" in note
    listed = clean("unclaimed")
    assert {deletion.identity for deletion in listed.deletions} == gone - kept
    assert not any(store.place(identity).artifact.exists() for identity in gone - kept)
    assert survey(home(), Wanted()).notes == []
    before = starts(finished)
    compute("anchored")
    assert starts(finished) == before


def test_what_a_run_has_computed_is_claimed_though_its_plan_no_longer_names_it(
    finished: Path,
) -> None:
    with driving("r") as run:
        plan_file = run.folder / "plan.json"
    plan_file.write_text("{}")
    assert survey(home(), Wanted(("unclaimed",))).deletions == []
    (plan_file.parent / "stages.jsonl").unlink()
    listed = survey(home(), Wanted(("unclaimed",)))
    assert {d.what.split()[0] for d in listed.deletions} == {"artifact", "work"}


def test_nothing_is_unclaimed_while_what_a_run_did_cannot_be_read(finished: Path) -> None:
    shutil.rmtree(finished / "runs" / "r")
    listed = survey(home(), Wanted(("unclaimed",)))
    assert listed.deletions
    done = finished / "runs" / "anchored" / "stages.jsonl"
    whole = done.read_text()
    done.write_text(whole + "{}\n")
    again = survey(home(), Wanted(("unclaimed",)))
    assert again.deletions == []
    assert any("were not looked for" in note for note in again.notes)
    survey(home(), Wanted())  # a note and no end of it
    done.write_text(whole)
    new_run("r", "agent0")  # a run begins between the list and the deletion
    with driving("r"):
        pass
    outcomes: list[str] = []
    carry_out(home(), listed, lambda _deletion, outcome: outcomes.append(outcome))
    assert set(outcomes) == {"in use; left alone"}


def lose(finished: Path, what: str) -> Path:
    """Make the run "anchored" unreadable; returns what a note has to name."""
    run = finished / "runs" / "anchored"
    if what == "mount":
        elsewhere = finished / "elsewhere" / "runs"
        with (finished / ".anchorloop" / "store" / "users").open("a") as stream:
            stream.write(f"{elsewhere}\n")
        shutil.rmtree(run)
        return elsewhere
    path = run / what.partition(" ")[0]
    if what == "run.json of a newer version":
        path.write_text(json.dumps({**json.loads(path.read_text()), "novelty": 1}))
    else:
        path.unlink()
        path.mkdir()  # reading it fails, also for root
    return path


UNREADABLE = ("run.json of a newer version", "run.json", "plan.json", "config.yaml", "mount")


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_an_unreadable_run_may_need_stays(
    finished: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving("r") as run:
        uid, place = run.settings.uid, run.store.root / "x"
    found = [
        OurContainer(name, "some", run_id, "executor", False, place)
        for name, run_id in (("of-r", uid), ("of-nobody-known", "lost"))
    ]
    monkeypatch.setattr("tasks.left_containers.our_containers", lambda: found)
    wanted = Wanted((*KINDS,))
    before = survey(home(), wanted)
    assert {"weights", "raw"} <= {d.kind for d in before.deletions}
    assert [d.what for d in before.deletions if d.kind == "containers"] == [
        "of-r", "of-nobody-known",
    ]  # fmt: skip
    lost = lose(finished, what)
    after = survey(home(), wanted)
    assert not {"weights", "raw", "unclaimed"} & {d.kind for d in after.deletions}
    assert [d.what for d in after.deletions if d.kind == "containers"] == ["of-r"]
    assert "checkpoints" in {d.kind for d in after.deletions}
    named, consequence = after.notes
    assert str(lost) in named
    assert "weights, raw records, unclaimed stages and containers of unknown runs" in consequence
