"""MLflow, and the only file that imports it: one parent run a run, one child an outer iteration.

Everything goes through the run's journal (``tasks.journal``) and is sent by a thread of its own.
So no call here waits for a server or raises because of one: tracking that is down delays the
picture, never the run, and what was not sent is sent by the next start.
"""

import fcntl
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from tasks.journal import Journal
from tasks.secrets import redact

log = logging.getLogger("anchorloop.tracking")

UID, PART = "anchorloop.uid", "anchorloop.part"
"""Tags by which a part's MLflow run is found again: the run folder's own id, and the part."""

PARENT = "parent"
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 30.0
_LENGTH_OF_PARAM = 500
_NOT_IN_NAMES = re.compile(r"[^\w. :/-]")

for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_CONFIGURE_LOGGING": "false",
}.items():
    os.environ.setdefault(_name, _value)


def child(iteration: int) -> str:
    """Name of the part that holds one outer iteration."""
    return f"i{iteration}"


class Tracker:
    """What a run says about itself. Parts are ``PARENT`` and ``child(t)``.

    No method raises for a server's sake; where the run folder takes no more: DiskFullError.
    """

    def __init__(
        self, folder: Path, uri: str, study: str, uid: str, artifacts: Path | None = None
    ) -> None:
        """Keep the journal in ``folder`` and send to ``uri``, experiment ``study``.

        ``uid`` tells runs of equal names apart; ``artifacts`` is given for a database that is
        used without a server: its tables are made if need be, and its files go there.
        """
        self._opened: set[str] = set()
        self.journal = Journal(folder / "journal.jsonl")
        self._sender = _Sender(self.journal, folder / "state.json", uri, study, uid, artifacts)
        self._sender.start()

    def open(self, part: str, name: str, tags: Mapping[str, str]) -> None:
        """Start or continue the part's MLflow run; only the first call of a process counts."""
        if part in self._opened:
            return
        self._opened.add(part)
        self.journal.add(part, "open", name=name, tags=dict(tags))
        self._sender.wake.set()

    def params(self, part: str, params: Mapping[str, Any]) -> None:
        """Parameters, once a part; nested mappings get dotted names, as MLflow allows them."""
        named = {_NOT_IN_NAMES.sub("_", key): value for key, value in flatten(params).items()}
        flat = {key: str(value)[:_LENGTH_OF_PARAM] for key, value in named.items()}
        self.journal.add_once(part, "params", params=flat)
        self._sender.wake.set()

    def metrics(
        self, part: str, step: int, values: Mapping[str, Any], revise: bool = False
    ) -> None:
        """Metrics at a step; what is no finite number is left out, a repeated one is not sent.

        With ``revise``, one that has another value now is sent, and MLflow shows the later one.
        """
        kept = {
            key: float(value)
            for key, value in values.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        if self.journal.add_points(part, step, kept, int(time.time() * 1000), revise):
            self._sender.wake.set()

    def tags(self, part: str, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self.journal.add(part, "tags", tags=dict(tags))
        self._sender.wake.set()

    def file(self, part: str, path: Path, folder: str | None = None) -> None:
        """Keep a copy of a small file with the part, in a folder (read when it is sent)."""
        self.journal.add(part, "file", path=str(path), folder=folder)
        self._sender.wake.set()

    def end(self, part: str, status: str) -> None:
        """End the part's MLflow run as FINISHED, FAILED or KILLED."""
        self.journal.add(part, "end", status=status)
        self._sender.wake.set()

    def address(self, part: str) -> str | None:
        """``<experiment id>/runs/<run id>`` of a part, once it is known."""
        return self._sender.address(part)

    def close(self, timeout: float = 20.0) -> bool:
        """Send what is left, for at most ``timeout`` seconds; whether everything was sent."""
        sent = self._sender.finish(timeout)
        if not self._sender.is_alive():
            self.journal.close()
        return sent


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out


def make_store(uri: str, artifacts: Path) -> None:
    """Make the tables of the store ``uri`` unless they are there; an SQLite file whole or not.

    MLflow makes its tables one by one, and a process killed meanwhile, or a full disk, would leave
    a file that nothing can open again; so they are made in a file of another name, which is
    renamed. Raises what the database's driver raises when it cannot be reached.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import create_engine

    if not uri.startswith("sqlite:///"):
        engine = create_engine(uri)
        engine.connect().close()  # MLflow would try for minutes
        engine.dispose()
        with artifacts.with_name("store.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            SqlAlchemyStore(uri, artifacts.as_uri()).engine.dispose()
        return
    path = Path(uri.removeprefix("sqlite:///"))
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for left in path.parent.glob(f"{path.stem}-*.new*"):
                left.unlink()
            # a new name each time: MLflow keeps its connections by name, also to a deleted file
            fresh = path.with_name(f"{path.stem}-{uuid4().hex}.new")
            made = f"sqlite:///{fresh}"
            try:
                SqlAlchemyStore(made, artifacts.as_uri())
            finally:  # of a failed try too, whose connections hold descriptors and blocks
                SqlAlchemyStore._get_or_create_engine(made).dispose()
            fresh.replace(path)


def _read_state(path: Path) -> dict[str, Any]:
    """How far an earlier sender came; one whose notes are unreadable came nowhere."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}


class _Rejected(Exception):
    """The server understood an entry and refuses it: sending it again is no use."""


class _Forgotten(Exception):
    """The store no longer knows a run or experiment it gave us: all is sent anew, after a pause."""


class _Sender(threading.Thread):
    """Sends the journal in order; remembers in a state file, by store, how far it came."""

    def __init__(
        self,
        journal: Journal,
        state: Path,
        uri: str,
        study: str,
        uid: str,
        artifacts: Path | None,
    ) -> None:
        super().__init__(name="tracking", daemon=True)
        self.wake = threading.Event()
        self._journal, self._state_path = journal, state
        self._uri, self._study, self._uid, self._artifacts = uri, study, uid, artifacts
        self._shown = redact(uri)
        self._ending, self._over = threading.Event(), threading.Event()
        self._client: Any = None
        self._sent_before: dict[tuple[str, str], set[int]] = {}
        self._made_here: set[str] = set()
        saved = _read_state(state)
        same = saved.get("uri") == self._shown and saved.get("study") == study
        self._offset: int = min(saved["offset"], journal.size) if same else 0
        self._experiment: str | None = saved.get("experiment") if same else None
        self._ids: dict[str, str] = dict(saved.get("ids", {})) if same else {}

    def address(self, part: str) -> str | None:
        known = self._experiment is not None and part in self._ids
        return f"{self._experiment}/runs/{self._ids[part]}" if known else None

    def finish(self, timeout: float) -> bool:
        self._ending.set()
        self.wake.set()
        self.join(timeout)
        self._over.set()
        return self._offset >= self._journal.size

    def run(self) -> None:
        pause = 0.0
        while not self._over.is_set():
            self.wake.wait()
            self.wake.clear()
            try:
                self._drain()
                pause = 0.0
            except Exception as error:  # a server's trouble is never the run's
                pause = min(max(RETRY_FIRST_S, 2 * pause), RETRY_MOST_S)
                if not self._over.is_set():
                    first = redact(str(error).partition("\n")[0])[:200]
                    log.warning("tracking store %s: %s; trying again", self._shown, first)
            if pause:
                if self._ending.is_set():
                    self._over.wait(min(pause, 1.0))
                else:
                    self._ending.wait(pause)
                self.wake.set()
            elif self._ending.is_set() and self._offset >= self._journal.size:
                return

    def _drain(self) -> None:
        while self._offset < self._journal.size:
            for entry, behind in self._journal.entries(self._offset):
                if self._over.is_set():
                    return
                try:
                    self._send(entry)
                except _Rejected as error:
                    log.warning("tracking store refused %s: %s", entry["op"], error)
                except _Forgotten:
                    self._offset, self._ids, self._experiment = 0, {}, None
                    self._sent_before.clear()
                    self._made_here.clear()
                    raise
                if self._over.is_set():  # another process may drive the run by now
                    return
                self._offset = behind
                self._save()

    def _save(self) -> None:
        content = {
            "uri": self._shown,
            "study": self._study,
            "offset": self._offset,
            "experiment": self._experiment,
            "ids": self._ids,
        }
        fresh = self._state_path.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.replace(self._state_path)

    def _send(self, entry: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        part, op = entry["part"], entry["op"]
        try:
            if op == "open":
                self._open(part, entry["name"], entry["tags"])
                return
            if part not in self._ids:
                raise _Rejected(f"part '{part}' was never opened")
            run = self._ids[part]
            client = self._connect()
            if op == "params":
                items = [Param(k, v) for k, v in entry["params"].items()]
                for start in range(0, len(items), 100):
                    client.log_batch(run, params=items[start : start + 100])
            elif op == "metrics":
                step = entry["step"]
                points = [
                    Metric(key, value, entry["time"], step)
                    for key, value in entry["values"].items()
                    if step not in self._steps(part, key)
                ]
                try:
                    client.log_batch(run, metrics=points)
                except Exception:  # it may have arrived: ask before sending again
                    self._made_here.discard(part)
                    self._sent_before.clear()
                    raise
            elif op == "tags":
                client.log_batch(run, tags=[RunTag(k, v) for k, v in entry["tags"].items()])
            elif op == "file":
                if Path(entry["path"]).exists():
                    client.log_artifact(run, entry["path"], entry.get("folder"))
            elif op == "end":
                client.set_terminated(run, status=entry["status"])
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise _Forgotten from error
            if error.error_code in {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}:
                raise _Rejected(str(error).partition("\n")[0][:300]) from error
            raise

    def _steps(self, part: str, key: str) -> set[int]:
        """Steps of a key that the store has from an earlier process (or an unclear attempt)."""
        if part in self._made_here:
            return set()
        if (part, key) not in self._sent_before:
            history = self._connect().get_metric_history(self._ids[part], key)
            self._sent_before[part, key] = {point.step for point in history}
        return self._sent_before[part, key]

    def _open(self, part: str, name: str, tags: Mapping[str, str]) -> None:
        client = self._connect()
        all_tags = {**tags, UID: self._uid, PART: part}
        if part not in self._ids:
            found = client.search_runs(
                [self._experiment], f"tags.`{UID}` = '{self._uid}' and tags.`{PART}` = '{part}'"
            )
            if found:
                self._ids[part] = found[0].info.run_id
        if part in self._ids:
            client.update_run(self._ids[part], status="RUNNING", name=name)
            for key, value in all_tags.items():
                client.set_tag(self._ids[part], key, value)
            return
        if part != PARENT:
            all_tags["mlflow.parentRunId"] = self._ids[PARENT]
        run = client.create_run(self._experiment, tags=all_tags, run_name=name)
        self._ids[part] = run.info.run_id
        self._made_here.add(part)

    def _connect(self) -> Any:
        from mlflow.tracking import MlflowClient

        if self._client is None:
            if self._artifacts is not None:
                make_store(self._uri, self._artifacts)
            self._client = MlflowClient(tracking_uri=self._uri)
        if self._experiment is None:
            found = self._client.get_experiment_by_name(self._study)
            self._experiment = (
                found.experiment_id
                if found is not None
                else self._client.create_experiment(
                    self._study,
                    artifact_location=self._artifacts.as_uri() if self._artifacts else None,
                    # else MLflow opens it in its pages for prompts and traces
                    tags={"mlflow.experimentKind": "custom_model_development"},
                )
            )
        return self._client
