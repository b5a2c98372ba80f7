"""Where things live on this machine: the store, the runs, and the servers' own files.

Everything lies under one root: the folder named by ``ANCHORLOOP_HOME``, else the current one.
"""

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment of every process of ours: nothing reports to anybody."""

HEARTBEAT = "ANCHORLOOP_HEARTBEAT_S"
"""Variable with the seconds between heartbeats of a flow run (``tasks.heartbeat``)."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Home:
    """The root folder and the places in it, all absolute; folders of state are user-private."""

    root: Path

    @property
    def state(self) -> Path:
        """Servers' files and state; private to the user."""
        return _private(self.root / ".anchorloop")

    @property
    def store(self) -> Path:
        """Artifacts by identity, shared by all runs; private to the user."""
        given = os.environ.get("ANCHORLOOP_STORE")
        return _private(Path(given).absolute() if given else self.state / "store")

    def announce(self) -> None:
        """Note in the store that the runs of this root use it: retention has to know them all."""
        mine = str(self.runs)
        with (self.store / "users").open("a+", encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            handle.seek(0)
            if mine not in handle.read().splitlines():
                handle.write(mine + "\n")

    def sharing(self) -> list[Path]:
        """Folders of runs that use this root's store, its own first."""
        path = self.store / "users"
        noted = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [self.runs, *(Path(line) for line in noted if line != str(self.runs))]

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return _private(self.root / "runs")

    def run(self, name: str) -> Path:
        """Folder of one run. Raises ValueError for a name that is no plain file name."""
        if not _RUN_NAME.fullmatch(name):
            raise ValueError(
                f"run name '{name}' is not usable; take letters, digits, '.', '_' and '-', "
                "at most 100, starting with a letter or digit"
            )
        return self.runs / name

    @property
    def tracking_uri(self) -> str:
        """The MLflow store of this root: ``MLFLOW_BACKEND_STORE_URI``, else an SQLite file.

        It may hold a password: store and print it by ``tasks.secrets.redact`` alone.
        """
        given = os.environ.get("MLFLOW_BACKEND_STORE_URI")
        if given:
            return given
        folder = _private(self.state / "mlflow")
        return f"sqlite:///{folder / 'mlflow.db'}"

    @property
    def tracking_artifacts(self) -> Path:
        """Artifacts of this root's own MLflow store."""
        return _private(_private(self.state / "mlflow") / "artifacts")


def home() -> Home:
    """The root of this process: ``ANCHORLOOP_HOME``, else the current folder."""
    return Home(Path(os.environ.get("ANCHORLOOP_HOME") or Path.cwd()).absolute())


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
