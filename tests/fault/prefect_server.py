"""A Prefect server that a test can stop and start again on the same port and database."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from flows.processes import answers, end_session, free_port
from tasks.home import QUIET

LIMIT_S = 120


class PrefectServer:
    """Context manager: up inside, gone afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1"]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self._port)],
                env={**clean, **QUIET, "PREFECT_HOME": str(self._folder)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + LIMIT_S
        while not answers(f"{self.url}/api/health"):
            assert time.monotonic() < deadline, (self._folder / "server.log").read_text()[-2000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and all its processes."""
        if self._process is not None:
            end_session(self._process.pid, 0.0)
            self._process.wait()
            self._process = None

    def __enter__(self) -> "PrefectServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
