"""The servers of this machine: Prefect, MLflow and a process worker, on loopback, in a state file.

Every process is known by its id and its start time in kernel ticks, so that ``stop`` ends exactly
what was started here and never a stranger that got the same process id.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.processes import (
    answers,
    end_session,
    free_port,
    port_is_free,
    start_ticks,
)
from flows.server_settings import SettingsError, mlflow_server, prefect_client, prefect_server
from tasks.home import HEARTBEAT, QUIET, Home
from tasks.secrets import redact
from training.locking import try_exclusive

START_S = 120.0
STOP_S = 60.0
POOL = "anchorloop"


class ServiceError(RuntimeError):
    """A server did not start or stop; the message says which, and where its log is."""


@dataclass(frozen=True)
class Service:
    """A process we started: ``ticks`` is its start time since boot, ``url`` empty for a worker."""

    name: str
    pid: int
    ticks: int
    port: int
    url: str
    log: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return start_ticks(self.pid) == self.ticks


def worker_command(name: str) -> list[str]:
    """Command line of a process worker; its queues limit how much runs at once."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
    return [*command, "--type", "process", "--name", name]


class Services:
    """Starts, finds and stops the servers of one root folder."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._state = home.state / "services.json"
        self._users = home.state / "prefect.users"
        self._keep = home.state / "keep"
        self.prefect_home = home.state / "prefect"

    def find(self, name: str) -> Service | None:
        """The live server of that name, if any."""
        entry = self._read()["services"].get(name)
        service = Service(**entry) if entry else None
        return service if service is not None and service.alive else None

    def port(self, name: str) -> int:
        """The port this server has or will get again: remembered, so that links stay good."""
        with self._locked():
            state = self._read()
            port = state["ports"].get(name)
            if port is None or not (self.find(name) or port_is_free(port)):
                port = state["ports"][name] = free_port()
                self._write(state)
            return int(port)

    @contextlib.contextmanager
    def prefect(self) -> Iterator[Service]:
        """Use the Prefect server: the one that is up, else one that ends with its last user.

        A new one is started at once but may not answer yet: call ``wait`` before the first use.
        """
        with self._users.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH)  # waits for a guard that is ending its server
            with self._locked():
                service = self._answering("prefect") or self.start_prefect()
            try:
                yield service
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)
                self._stop_if_unused(service)

    def start_all(self) -> tuple[Service, Service]:
        """Start what is not up yet of Prefect and MLflow, to stay; both answer afterwards."""
        self._keep.touch()
        with self._users.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH)  # waits for a guard that is ending its server
            with self._locked():
                prefect = self._answering("prefect") or self.start_prefect()
                mlflow = self.find("mlflow") or self.start_mlflow()
        self.wait(prefect)
        self.wait(mlflow)
        return prefect, mlflow

    def stop_all(self) -> tuple[list[str], bool]:
        """End every server; returns the ended ones, and whether a run still uses Prefect."""
        in_use = self.find("prefect") is not None and self._in_use()
        names = ["worker", *([] if in_use else ["prefect"]), "mlflow"]
        live = [name for name in names if self.find(name)]
        self._keep.unlink(missing_ok=True)  # from here on the guard may be quicker with Prefect
        for name in live:
            self.stop(name)
        return live, in_use

    def _in_use(self) -> bool:
        with self._users.open("a") as handle:
            return not try_exclusive(handle.fileno())

    def start_prefect(self) -> Service:
        """Start the Prefect server under its guard; returns before it answers."""
        port = self._pick("prefect")
        url = f"http://127.0.0.1:{port}"
        guard = [sys.executable, str(Path(__file__).with_name("guard.py"))]
        server = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        settings = {
            "PREFECT_API_URL": f"{url}/api",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        }
        return self._start(
            "prefect",
            [*guard, str(self._users), str(self._keep), sys.executable, *server],
            port,
            url,
            settings,
        )

    def start_mlflow(self) -> Service:
        """Start the MLflow server on this root's own store; returns before it answers.

        Raises ServiceError when the store cannot be opened.
        """
        try:
            arguments, settings = mlflow_server(self._home, os.environ)
        except SettingsError as error:
            raise ServiceError(str(error)) from error
        except Exception as error:  # whatever the database's driver raises is the answer
            said = redact(str(error).partition("\n")[0])
            shown = redact(self._home.tracking_uri)
            raise ServiceError(f"the MLflow store {shown} cannot be opened: {said}") from error
        port = self._pick("mlflow")
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--workers", "1", *arguments]
        return self._start("mlflow", command, port, f"http://127.0.0.1:{port}", settings)

    def start_worker(self) -> None:
        """Start a process worker, unless it is up; its queues limit how much runs at once."""
        with self._locked():
            if self.find("worker") is None:
                self._start_worker()

    def _start_worker(self) -> Service:
        # it asks a server on this machine, for one user who has just pressed a button
        settings = {"PREFECT_WORKER_QUERY_SECONDS": "3"}
        return self._start("worker", worker_command("local"), 0, "", settings)

    def environment(self) -> dict[str, str]:
        """Variables with which a process talks to this root's Prefect server and only to it."""
        state = self._read()
        entry = state["services"].get("prefect", {})
        own = {
            "PREFECT_HOME": str(self.prefect_home),
            "PREFECT_PROFILES_PATH": str(self.prefect_home / "profiles.toml"),
            "PREFECT_LOGGING_EXTRA_LOGGERS": "anchorloop",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            "ANCHORLOOP_HOME": str(self._home.root),
        }
        if entry:
            own["PREFECT_API_URL"] = f"{entry['url']}/api"
        if "heartbeat" in state:
            own[HEARTBEAT] = state["heartbeat"]
        if "mlflow" in state["ports"]:
            own["ANCHORLOOP_MLFLOW_URL"] = f"http://127.0.0.1:{state['ports']['mlflow']}"
        return {**QUIET, **own, **prefect_client(os.environ)}

    def keep_heartbeat(self, seconds: float) -> None:
        """Have every process of this root beat as often as the server's automation expects."""
        with self._locked():
            self._write({**self._read(), "heartbeat": f"{seconds:g}"})

    def wait(self, service: Service) -> None:
        """Wait until a server answers. Raises ServiceError when it ends or takes too long."""
        path = "/api/health" if service.name == "prefect" else "/health"
        deadline = time.monotonic() + START_S
        while not answers(service.url + path):
            if not service.alive:
                raise ServiceError(
                    f"the {service.name} server ended while starting; see {service.log}"
                )
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"the {service.name} server did not answer at {service.url} within "
                    f"{START_S:.0f} s; see {service.log}"
                )
            time.sleep(0.1)

    def stop(self, name: str) -> None:
        """End a server with all its processes."""
        service = self.find(name)
        if service is not None:
            end_session(service.pid, STOP_S)
        with self._locked():
            state = self._read()
            state["services"].pop(name, None)
            self._write(state)

    def _answering(self, name: str) -> Service | None:
        """A server that is up for certain: one that is just ending does not count."""
        service = self.find(name)
        try:
            if service is not None:
                self.wait(service)
        except ServiceError:
            return None
        return service

    def _stop_if_unused(self, service: Service) -> None:
        with self._users.open("a") as handle:
            if not self._keep.exists() and try_exclusive(handle.fileno()) and service.alive:
                self.stop(service.name)

    def _start(
        self,
        name: str,
        command: list[str],
        port: int,
        url: str,
        settings: Mapping[str, str] | None = None,
    ) -> Service:
        log = self._home.state / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        if name == "prefect":
            inherited = prefect_server(os.environ)
        else:
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        environment = {**inherited, **self.environment(), **(settings or {})}
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._home.root,
                env=environment,
            )
        ticks = start_ticks(process.pid)
        if ticks is None:
            raise ServiceError(f"the {name} server ended at once; see {log}")
        service = Service(name, process.pid, ticks, port, url, str(log))
        state = self._read()
        state["services"][name] = asdict(service)
        if port:
            state["ports"][name] = port
        self._write(state)
        return service

    def _pick(self, name: str) -> int:
        port = self._read()["ports"].get(name)
        return int(port) if port is not None and port_is_free(port) else free_port()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._home.state / "services.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(self._state.read_text(encoding="utf-8")))
        return {"services": {}, "ports": {}}

    def _write(self, state: dict[str, Any]) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=2), encoding="utf-8")
        fresh.replace(self._state)
