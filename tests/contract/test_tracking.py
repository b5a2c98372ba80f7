"""Tracking against a real MLflow store: once each, continued after a crash, never in the way."""

import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tasks import tracking
from tasks.journal import Journal
from tasks.metric_keys import CHILD, PARENT, SECONDS, stage_values
from tasks.tracking import PARENT as PARENT_PART
from tasks.tracking import PART, UID, Tracker, child, make_store

mlflow = pytest.importorskip("mlflow.tracking")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for the module: making one takes seconds, runs in it are told by uid."""
    folder = tmp_path_factory.mktemp("store")
    made = f"sqlite:///{folder / 'mlflow.db'}"
    make_store(made, folder / "artifacts")
    return made


def tracker(folder: Path, uri: str, uid: str) -> Tracker:
    return Tracker(folder, uri, "study", uid, folder / "artifacts")


def runs(uri: str, uid: str) -> dict[str, object]:
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("study")
    found = client.search_runs([experiment.experiment_id], f"tags.`{UID}` = '{uid}'")
    parts = {run.data.tags[PART]: run for run in found}
    assert len(parts) == len(found), "a part has two runs"
    return parts


def points(uri: str, run: object, key: str) -> list[tuple[int, float]]:
    client = mlflow.MlflowClient(tracking_uri=uri)
    history = client.get_metric_history(run.info.run_id, key)  # type: ignore[attr-defined]
    return sorted((point.step, point.value) for point in history)


def test_parent_and_child_with_params_metrics_tags_and_files(tmp_path: Path, uri: str) -> None:
    note = tmp_path / "config.yaml"
    note.write_text("a: 1\n")
    told = tracker(tmp_path, uri, "first")
    told.open(PARENT_PART, "run", {"method": "m"})
    told.params(PARENT_PART, {"rollout": {"group_size": 8, "+a@b": 1}, "seed": 0})
    told.file(PARENT_PART, note)
    told.open(child(1), "run/i1", {"iteration": "1"})
    for step in range(3):
        told.metrics(child(1), step, {"executor/loss": step / 2, "bad": float("nan"), "no": None})
    told.end(child(1), "FINISHED")
    assert told.close()
    parts = runs(uri, "first")
    parent, inner = parts["parent"], parts["i1"]
    assert parent.data.params == {"rollout.group_size": "8", "rollout._a_b": "1", "seed": "0"}
    assert parent.data.tags["method"] == "m"
    assert inner.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert inner.info.status == "FINISHED"
    assert inner.info.run_name == "run/i1"
    assert points(uri, inner, "executor/loss") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert set(inner.data.metrics) == {"executor/loss"}
    client = mlflow.MlflowClient(tracking_uri=uri)
    assert [f.path for f in client.list_artifacts(parent.info.run_id)] == ["config.yaml"]


def test_continuing_sends_nothing_twice(tmp_path: Path, uri: str) -> None:
    for steps in (2, 4):  # the second process repeats what the first has sent
        told = tracker(tmp_path, uri, "again")
        told.open(PARENT_PART, "run", {})
        told.params(PARENT_PART, {"a": 1})
        for step in range(steps):
            told.metrics(PARENT_PART, step, {"x": float(step)})
        told.end(PARENT_PART, "FINISHED")
        assert told.close()
    parts = runs(uri, "again")
    assert points(uri, parts["parent"], "x") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]
    assert parts["parent"].info.status == "FINISHED"


def test_a_crash_between_sending_and_noting_sends_nothing_twice(tmp_path: Path, uri: str) -> None:
    told = tracker(tmp_path, uri, "torn")
    told.open(PARENT_PART, "run", {})
    told.metrics(PARENT_PART, 0, {"x": 1.0, "y": 2.0})
    assert told.close()
    (tmp_path / "state.json").unlink()  # as if it had never been written
    told = tracker(tmp_path, uri, "torn")
    told.metrics(PARENT_PART, 1, {"x": 3.0})
    assert told.close()
    run = runs(uri, "torn")["parent"]
    assert points(uri, run, "x") == [(0, 1.0), (1, 3.0)]
    assert points(uri, run, "y") == [(0, 2.0)]


def test_a_killed_process_is_continued(tmp_path: Path, uri: str) -> None:
    code = f"""
        import os, signal, time
        from pathlib import Path
        from tasks.tracking import Tracker
        told = Tracker(Path({str(tmp_path)!r}), {uri!r}, "study", "killed")
        told.open("parent", "run", {{}})
        for step in range(200):
            told.metrics("parent", step, {{"x": float(step)}})
            time.sleep(0.01)
            if step == 150:
                os.kill(os.getpid(), signal.SIGKILL)
    """
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, cwd=root, timeout=120).returncode == -9
    told = tracker(tmp_path, uri, "killed")
    told.open(PARENT_PART, "run", {})
    for step in range(100, 200):
        told.metrics(PARENT_PART, step, {"x": float(step)})
    assert told.close(60)
    run = runs(uri, "killed")["parent"]
    assert points(uri, run, "x") == [(step, float(step)) for step in range(200)]


def test_a_half_made_store_is_made_anew(tmp_path: Path) -> None:
    """A kill while the tables are made must not spoil tracking for good."""
    store = tmp_path / "store"
    store.mkdir()
    code = f"""
        import os, signal, threading, time
        from pathlib import Path
        from tasks.tracking import make_store
        def kill():
            while not list(Path({str(store)!r}).glob("mlflow-*.new")):
                time.sleep(0.001)
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=kill).start()
        make_store("sqlite:///{store}/mlflow.db", Path({str(store)!r}))
    """
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, cwd=root, timeout=120).returncode == -9
    assert not (store / "mlflow.db").exists()
    fresh = f"sqlite:///{store}/mlflow.db"
    told = tracker(tmp_path, fresh, "half")
    told.open(PARENT_PART, "run", {})
    assert told.close(60)
    assert set(runs(fresh, "half")) == {"parent"}
    assert not list(store.glob("*.new*"))


def test_a_store_that_found_no_room_is_made_anew(tmp_path: Path) -> None:
    """By the same process, as soon as there is room."""
    store = tmp_path / "store"
    store.mkdir()
    code = f"""
        import os, resource
        from pathlib import Path
        from tasks.tracking import make_store
        def make(most):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            make_store("sqlite:///{store}/mlflow.db", Path({str(store)!r}))
        try:
            make(200_000)
        except Exception as error:
            print("no room", type(error).__name__)
        links = (f"/proc/self/fd/{{number}}" for number in os.listdir("/proc/self/fd"))
        print([link for link in links if "mlflow-" in os.path.realpath(link)])
        make(resource.RLIM_INFINITY)
    """
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(code)]
    made = subprocess.run(command, cwd=root, timeout=240, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout == "no room OperationalError\n[]\n"
    assert sorted(path.name for path in store.glob("mlflow*")) == ["mlflow.db", "mlflow.lock"]


def test_a_refused_entry_does_not_block_the_rest(tmp_path: Path, uri: str) -> None:
    told = tracker(tmp_path, uri, "refused")
    told.open(PARENT_PART, "run", {})
    told.metrics(PARENT_PART, 0, {"not@a(name": 1.0})
    told.metrics(PARENT_PART, 0, {"good": 2.0})
    assert told.close()
    assert runs(uri, "refused")["parent"].data.metrics == {"good": 2.0}


def test_a_dead_server_delays_nothing_and_is_caught_up_later(tmp_path: Path, uri: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{probe.getsockname()[1]}"
    told = Tracker(tmp_path, dead, "study", "later")
    told.open(PARENT_PART, "run", {})
    told.metrics(PARENT_PART, 0, {"x": 1.0})
    assert told.close(2.0) is False
    told = tracker(tmp_path, uri, "later")
    told.metrics(PARENT_PART, 1, {"x": 2.0})
    assert told.close()
    assert points(uri, runs(uri, "later")["parent"], "x") == [(0, 1.0), (1, 2.0)]


def test_after_its_end_a_slow_server_is_sent_nothing_more(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tracker(tmp_path, uri, "slow")
    sent: list[object] = []
    answered = threading.Event()

    def send(entry: object) -> None:
        sent.append(entry)
        answered.wait(60)

    monkeypatch.setattr(told._sender, "_send", send)
    for step in range(5):
        told.metrics(PARENT_PART, step, {"x": 1.0})
    assert told.close(0.2) is False
    answered.set()
    told._sender.join(60)
    assert not told._sender.is_alive()
    assert len(sent) == 1
    assert not (tmp_path / "state.json").exists()  # the next driver's notes are its own


def test_after_its_end_a_server_that_comes_back_is_sent_nothing(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tracker(tmp_path, uri, "too late")
    away, sent = threading.Event(), []
    away.set()

    def send(entry: object) -> None:
        if away.is_set():
            raise ConnectionError("away")
        sent.append(entry)

    monkeypatch.setattr(told._sender, "_send", send)
    told.open(PARENT_PART, "run", {})
    assert told.close(0.5) is False
    away.clear()
    told._sender.join(60)
    assert not told._sender.is_alive()
    assert sent == []


def test_the_end_does_not_wait_for_the_next_try(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "RETRY_FIRST_S", 600.0)
    monkeypatch.setattr(tracking, "RETRY_MOST_S", 600.0)
    told = tracker(tmp_path, uri, "back")
    tried = threading.Event()

    def send(entry: object) -> None:
        if not tried.is_set():
            tried.set()
            raise ConnectionError("away")

    monkeypatch.setattr(told._sender, "_send", send)
    told.open(PARENT_PART, "run", {})
    assert tried.wait(60)
    assert told.close(60) is True


def test_unreadable_notes_of_what_was_sent_cost_no_point_and_double_none(
    tmp_path: Path, uri: str
) -> None:
    for step in range(2):
        told = tracker(tmp_path, uri, "notes")
        told.open(PARENT_PART, "run", {})
        told.metrics(PARENT_PART, step, {"x": 1.0})
        assert told.close(60)
        (tmp_path / "state.json").write_text('{"uri": "sq')
    assert points(uri, runs(uri, "notes")["parent"], "x") == [(0, 1.0), (1, 1.0)]


def test_a_server_that_never_answers_does_not_hold_up_the_caller(tmp_path: Path) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        done = threading.Event()

        def report() -> None:
            told = Tracker(tmp_path, f"http://127.0.0.1:{mute.getsockname()[1]}", "study", "mute")
            told.open(PARENT_PART, "run", {})
            for step in range(100):
                told.metrics(PARENT_PART, step, {"x": 1.0})
            told.close(0.5)
            done.set()

        threading.Thread(target=report, daemon=True).start()
        assert done.wait(20)


def test_journal_drops_a_torn_line_and_repeated_points(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    assert journal.add_points("i1", 0, {"x": 1.0, "y": 1.0}, 0) == 2
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"part": "i1", "op": "met')
    journal = Journal(path)
    assert journal.add_points("i1", 0, {"x": 9.0, "z": 1.0}, 0) == 1
    values = [entry["values"] for entry, _ in journal.entries(0)]
    assert values == [{"x": 1.0, "y": 1.0}, {"z": 1.0}]


def test_key_budget_and_names() -> None:
    assert len(PARENT) <= 20
    assert sum(map(len, CHILD.values())) + len(SECONDS) <= 56
    kept = stage_values("executor", {"loss": 1.0, "something_else": 2.0})
    assert kept == {"executor/loss": 1.0}
