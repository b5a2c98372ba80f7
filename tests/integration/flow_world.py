"""The command line and its servers in a folder of their own, with stub stages or the real ones."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
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

    def __init__(self, root: Path, stubs: bool) -> None:
        """With ``stubs``, every Python process started here launches stub stages."""
        self.root = root
        root.mkdir(exist_ok=True)
        paths = [str(ROOT)]
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
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if str(self.root).encode() in (entry / "environ").read_bytes():
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    @contextlib.contextmanager
    def servers(self, **environment: str) -> Iterator["Prefect"]:
        """``anchorloop up``, and ``down`` afterwards."""
        done = self.cli("up", **environment)
        try:
            assert done.returncode == 0, done.stderr
            yield Prefect(done.stdout.splitlines()[0].split()[1])
        finally:
            self.cli("down")


class Prefect:
    """The few calls of Prefect's REST interface that the tests make."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def trigger(self, deployment: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Create a flow run of ``flow/deployment`` and wait for its end."""
        identity = self.call(f"/deployments/name/{deployment}")["id"]
        made = self.call(f"/deployments/{identity}/create_flow_run", {"parameters": parameters})
        deadline = time.monotonic() + LIMIT_S
        while True:
            run = dict(self.call(f"/flow_runs/{made['id']}"))
            if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                return run
            assert time.monotonic() < deadline, f"the flow run stayed {run['state_name']}"
            time.sleep(0.5)

    def states(self, kind: str, name: str) -> list[str]:
        """States of all ``flow_runs`` or ``task_runs`` of a name, sorted."""
        runs = self.call(f"/{kind}/filter", {})
        return sorted(run["state_name"] for run in runs if run["name"] == name)


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
