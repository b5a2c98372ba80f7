"""The command line and its servers in a folder of their own, with stub stages or the real ones."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = 900

STUBS = """
from tasks import launchers

launchers.LAUNCHERS["local"] = lambda: launchers.LocalLauncher("tests.contract.stub_stages")
"""


class World:
    """One root folder: its command line, runs, store and servers."""

    def __init__(self, root: Path, stubs: bool, source: Path = ROOT) -> None:
        """With ``stubs``, every Python process started here launches stub stages; ``source`` is
        the project's folder."""
        self.root = root
        root.mkdir(exist_ok=True)
        paths = [str(source)]
        if stubs:
            site = root / "site"
            site.mkdir()
            (site / "sitecustomize.py").write_text(STUBS)
            paths.insert(0, str(site))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW"))}
        self.environment = {
            **clean,
            "PYTHONPATH": os.pathsep.join(paths),
            "ANCHORLOOP_HOME": str(root),
            "STUB_LOG": str(root / "starts.log"),
            "OMP_NUM_THREADS": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.cli.main", *arguments]

    def cli(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def killed(self, when: Callable[[], bool], *arguments: str, **environment: str) -> None:
        """Run a command and kill it with -9 as soon as ``when`` holds."""
        assert self.signalled(signal.SIGKILL, when, *arguments, **environment) == -9

    def signalled(
        self, number: int, when: Callable[[], bool], *arguments: str, **environment: str
    ) -> int:
        """Run a command, send it a signal as soon as ``when`` holds; its exit status."""
        said = self.root / "killed.log"
        with (
            said.open("w") as output,
            subprocess.Popen(
                self.command(*arguments),
                cwd=self.root,
                env={**self.environment, **environment},
                stdout=output,
                stderr=output,
            ) as process,
        ):
            deadline = time.monotonic() + LIMIT_S
            while not when():
                assert process.poll() is None, f"it ended by itself: {said.read_text()}"
                assert time.monotonic() < deadline, "waited in vain"
                time.sleep(0.02)
            os.kill(process.pid, number)
            return process.wait(LIMIT_S)

    @property
    def starts(self) -> list[str]:
        """``stage:iteration from step`` of every start of a stub stage."""
        log = self.root / "starts.log"
        return log.read_text().splitlines() if log.exists() else []

    def summary(self, run: str) -> dict[str, Any]:
        return dict(json.loads((self.root / "runs" / run / "summary.json").read_text()))

    def identity(self, run: str, entry: str) -> str:
        """Identity of a stage that the run has recorded, such as ``i1/executor``."""
        path = self.root / "runs" / run / "stages.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return next(x["identity"] for x in lines if f"i{x['iteration']}/{x['stage']}" == entry)

    def artifact(self, identity: str) -> Path:
        return self.root / ".anchorloop" / "store" / identity / "artifact"

    def processes(self) -> list[str]:
        """Command lines of all live processes that belong to this folder."""
        return list(self._processes().values())

    def left(self) -> list[str]:
        """Processes of this folder that have not ended after a while."""
        deadline = time.monotonic() + 20
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _processes(self) -> dict[int, str]:
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if str(self.root).encode() in (entry / "environ").read_bytes():
                        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        found[int(entry.name)] = words
        return found

    def kill(self, *words: str) -> None:
        """Kill -9 the processes of this folder with these words, once there are any."""
        deadline = time.monotonic() + LIMIT_S
        found: list[int] = []
        while not found:
            assert time.monotonic() < deadline, f"no process of {words} was seen"
            time.sleep(0.02)
            lines = self._processes()
            found = [pid for pid, line in lines.items() if set(words) <= set(line.split())]
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def servers(self, login: str | None = None, **environment: str) -> Iterator["Prefect"]:
        """``anchorloop up``, and ``down`` afterwards; ``login`` is what Prefect asks for."""
        done = self.cli("up", **environment)
        try:
            assert done.returncode == 0, done.stderr
            prefect, mlflow = (line.split()[1] for line in done.stdout.splitlines()[:2])
            yield Prefect(prefect, mlflow, login)
        finally:
            self.cli("down")


ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Prefect:
    """The few calls of Prefect's REST interface that the tests make."""

    def __init__(self, url: str, mlflow: str, login: str | None = None) -> None:
        """``mlflow`` is the address of the MLflow server beside it."""
        self.url, self.mlflow, self._login = url, mlflow, login

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._login is not None:
            login = base64.b64encode(self._login.encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        request = urllib.request.Request(f"{self.url}/api{path}", data, headers)
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                # Prefect asks its clients to come back while its SQLite database is locked
                if error.code != 503 or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def start(
        self, deployment: str, parameters: dict[str, Any], **environment: str
    ) -> dict[str, Any]:
        """Create a flow run of ``flow/deployment``, with more variables for its process."""
        identity = self.call(f"/deployments/name/{deployment}")["id"]
        asked: dict[str, Any] = {"parameters": parameters}
        if environment:
            asked["job_variables"] = {"env": environment}
        return dict(self.call(f"/deployments/{identity}/create_flow_run", asked))

    def wait(self, flow_run: str, run_count: int = 1) -> dict[str, Any]:
        """Wait until a flow run has ended, for the ``run_count``-th time."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            run = dict(self.call(f"/flow_runs/{flow_run}"))
            if run["run_count"] >= run_count and run["state_type"] in ENDED:
                return run
            assert time.monotonic() < deadline, f"the flow run stayed {run['state_name']}"
            time.sleep(0.5)

    def trigger(
        self, deployment: str, parameters: dict[str, Any], **environment: str
    ) -> dict[str, Any]:
        """Create a flow run of ``flow/deployment`` and wait for its end."""
        return self.wait(self.start(deployment, parameters, **environment)["id"])

    def retry(self, flow_run: str) -> dict[str, Any]:
        """What the button Retry does, and wait for the end.

        A worker reports a crash twice, some seconds apart, and the second report undoes a retry
        asked for in between: then it is asked for again.
        """
        deadline = time.monotonic() + LIMIT_S
        while self._just_crashed(flow_run):
            assert time.monotonic() < deadline, "it crashes again and again"
            time.sleep(0.5)
        count = self.call(f"/flow_runs/{flow_run}")["run_count"]
        while True:
            state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
            answer = self.call(f"/flow_runs/{flow_run}/set_state", {"state": state})
            assert answer["status"] == "ACCEPT", answer
            while True:
                run = dict(self.call(f"/flow_runs/{flow_run}"))
                if run["run_count"] > count and run["state_type"] in ENDED:
                    return run
                if run["state_name"] == "Crashed":
                    break
                assert time.monotonic() < deadline, f"the flow run stayed {run['state_name']}"
                time.sleep(0.5)

    def _just_crashed(self, flow_run: str) -> bool:
        state = self.call(f"/flow_runs/{flow_run}")["state"]
        age = datetime.now(UTC) - datetime.fromisoformat(state["timestamp"])
        return state["name"] == "Crashed" and age < timedelta(seconds=8)

    def named(self, name: str) -> dict[str, Any]:
        """The flow run of a name, once it runs under it."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := self._runs("flow_runs", name)):
            assert time.monotonic() < deadline, f"no flow run is called {name}"
            time.sleep(0.5)
        assert len(found) == 1
        return found[0]

    def newest(self, kind: str, name: str) -> dict[str, Any]:
        """The latest of the ``flow_runs`` or ``task_runs`` of a name."""
        return max(self._runs(kind, name), key=lambda run: str(run["created"]))

    def states(self, kind: str, name: str) -> list[str]:
        """States of all ``flow_runs`` or ``task_runs`` of a name, sorted."""
        return sorted(run["state_name"] for run in self._runs(kind, name))

    def _runs(self, kind: str, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(
            f"/{kind}/filter", {kind: {"name": {"any_": [name]}}}
        )
        return found


def mlflow_runs(root: Path, experiment: str = "anchorloop") -> dict[str, Any]:
    """Runs of this root's own MLflow store, by name."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{root}/.anchorloop/mlflow/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    named = {run.info.run_name: run for run in runs}
    assert len(named) == len(runs), "two runs have one name"
    return named


def history(root: Path, run: Any, key: str) -> list[tuple[int, float]]:
    """(step, value) of a metric, in order of steps."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{root}/.anchorloop/mlflow/mlflow.db")
    return sorted((p.step, p.value) for p in client.get_metric_history(run.info.run_id, key))


def files(root: Path, run: Any, folder: str) -> list[str]:
    """Paths of a run's MLflow artifacts in a folder."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{root}/.anchorloop/mlflow/mlflow.db")
    return sorted(file.path for file in client.list_artifacts(run.info.run_id, folder))
