"""The store: whole artifacts only, one holder, fencing, adoption."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from training.errors import InfraError
from training.store import Store, payload_digest

ID = "a" * 64
OTHER = "b" * 64


def put(store: Store, identity: str, text: str = "weights", **result: object) -> None:
    with store.hold(identity) as attempt:
        place = store.place(identity)
        (place.payload / "model").mkdir(parents=True, exist_ok=True)
        (place.payload / "model" / "weights").write_text(text, encoding="utf-8")
        store.publish(identity, attempt, {"seconds": 1.0, **result})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_nothing_is_done_before_it_is_published(store: Store) -> None:
    assert store.verify(ID) is None
    assert not store.damaged(ID)
    store.place(ID).payload.mkdir(parents=True)
    (store.place(ID).payload / "file").write_text("half", encoding="utf-8")
    assert store.verify(ID) is None
    put(store, ID)
    manifest = store.verify(ID)
    assert manifest is not None
    assert set(manifest.files) == {"model/weights", "result.json", "file"}
    assert store.result(ID)["seconds"] == 1.0


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "manifest"])
def test_damage_is_seen(store: Store, damage: str) -> None:
    put(store, ID)
    assert store.verify(ID) is not None  # fills the cache of checked time stamps
    file = store.place(ID).artifact / "model" / "weights"
    if damage == "flip":
        file.write_text("Weights", encoding="utf-8")
    elif damage == "truncate":
        os.truncate(file, 3)
    elif damage == "delete":
        file.unlink()
    else:
        (store.place(ID).artifact / "manifest.json").write_text("{", encoding="utf-8")
    assert store.verify(ID) is None
    assert store.damaged(ID)
    put(store, ID)
    assert store.verify(ID) is not None
    assert (store.place(ID).root / "artifact.aside-1").exists()


def test_payload_digest_leaves_timings_out(store: Store) -> None:
    put(store, ID, seconds_of_something=1)
    put(store, OTHER, seconds_of_something=2)
    a, b = store.verify(ID), store.verify(OTHER)
    assert a is not None
    assert b is not None
    assert a.payload_sha256 == b.payload_sha256
    changed = {**a.files, "model/weights": {"size": 7, "sha256": "0" * 64}}
    assert payload_digest(changed) != a.payload_sha256


def test_a_consumer_knows_when_its_input_was_rebuilt_differently(store: Store) -> None:
    put(store, ID)
    manifest = store.verify(ID)
    assert manifest is not None
    used = {"model": {"identity": ID, "payload_sha256": manifest.payload_sha256}}
    put(store, OTHER, inputs=used)
    assert store.stale_inputs(OTHER) == []
    put(store, ID, text="other weights")
    assert store.stale_inputs(OTHER) == ["model"]


def hold_forever(root: Path, ready: "multiprocessing.synchronize.Event") -> None:
    with Store(root).hold(ID):
        ready.set()
        time.sleep(60)


def test_one_holder_that_frees_the_lock_by_dying(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=hold_forever, args=(store.root, ready))
    child.start()
    try:
        assert ready.wait(30)
        holder = store.holder(ID)
        assert holder is not None
        assert holder["pid"] == child.pid
        with (
            pytest.raises(InfraError, match=f"process {child.pid}"),
            store.hold(ID, wait_seconds=0.2),
        ):
            pytest.fail("two holders")
    finally:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    assert store.holder(ID) is None
    with store.hold(ID) as attempt:
        assert attempt == 2


def test_a_late_attempt_cannot_publish(store: Store) -> None:
    with store.hold(ID) as old:
        pass
    with store.hold(ID):
        store.place(ID).payload.mkdir()
        with pytest.raises(InfraError, match="overtaken by attempt 2"):
            store.publish(ID, old, {"seconds": 0})
    assert store.verify(ID) is None


def test_adoption_shares_bytes_and_says_why(store: Store) -> None:
    put(store, ID)
    store.adopt(ID, OTHER, {"code": {"old": "x", "new": "y"}})
    assert store.verify(OTHER) is not None
    record = json.loads((store.place(OTHER).root / "adopted.json").read_text(encoding="utf-8"))
    assert record == {"from": ID, "code": {"old": "x", "new": "y"}}
    with pytest.raises(InfraError, match="already has an artifact"):
        store.adopt(ID, OTHER, {})
    with pytest.raises(InfraError, match="nothing to adopt"):
        store.adopt("c" * 64, "d" * 64, {})


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.store import write_atomic

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InfraError, match=r"no space left for progress\.json"):
        write_atomic(tmp_path / "progress.json", "{}")
    assert list(tmp_path.iterdir()) == []
