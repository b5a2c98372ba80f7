"""A real MLflow server that can be stopped and started again, and one that never answers."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from flows.processes import answers, end_session, free_port
from tasks.home import QUIET, Home
from tasks.tracking import make_store

LIMIT_S = 120


class MlflowServer:
    """A server on the tracking store of a root; context manager, gone afterwards."""

    def __init__(self, root: Path) -> None:
        self._home, self._port = Home(root), free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        uri, artifacts = self._home.tracking_uri, self._home.tracking_artifacts
        make_store(uri, artifacts)
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--workers", "1", "--backend-store-uri", uri]
        command += ["--default-artifact-root", artifacts.as_uri()]
        log_file = self._home.state / "server.log"
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + LIMIT_S
        while not answers(f"{self.url}/health"):
            assert time.monotonic() < deadline, log_file.read_text()[-2000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """kill -9 to it and all its processes."""
        if self._process is not None:
            end_session(self._process.pid, 0.0)
            self._process.wait()
            self._process = None

    def __enter__(self) -> "MlflowServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Silence:
    """A server that takes connections and never says a word; context manager."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        try:
            while True:
                self.taken.append(self._socket.accept()[0])
        except OSError:
            return

    def __enter__(self) -> "Silence":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for one in self.taken:
            one.close()
