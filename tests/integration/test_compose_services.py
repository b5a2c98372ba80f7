"""What compose.yaml starts, started here without containers: its commands, settings and checks.

No image can be had on a machine without a registry. So each service runs as a process, in its
order, with its own command and environment; only addresses and places are replaced, and the
database is one of ours.
"""

import base64
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.processes import end_session, free_port
from tests.integration.flow_world import Prefect, World
from tests.integration.postgres import PASSWORD, postgres

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
SECRETS = {
    "POSTGRES_PASSWORD": PASSWORD,
    "PREFECT_LOGIN": "team:canary-prefect",
    "MLFLOW_PASSWORD": "canary-mlflow-admin",
    "MLFLOW_SECRET_KEY": "canary-key",
}
STARTS_S = 300


class Place:
    """Where the services run: one folder, one port a service instead of one address each."""

    def __init__(self, root: Path, database_port: int) -> None:
        self.world = World(root, stubs=True)
        self.ports = {"4200": free_port(), "5000": free_port(), "8080": free_port()}
        self.ports["5432"] = database_port

    def here(self, text: str) -> str:
        """A value of compose.yaml with secrets filled in and addresses of this machine."""
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
        for name in ("prefect", "mlflow", "postgres"):
            text = re.sub(rf"\b{name}:(?=\d)", "127.0.0.1:", text)
        text = text.replace("0.0.0.0", "127.0.0.1").replace("/data", str(self.world.root))
        for port, ours in self.ports.items():
            text = re.sub(rf"(?<!\d){port}\b", str(ours), text)
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: SECRETS[found[1]], text)
        return "127.0.0.1" if text == "postgres" else text

    def command(self, words: list[str]) -> list[str]:
        program, *arguments = map(self.here, words)
        modules = {"prefect": "prefect", "mlflow": "mlflow", "anchorloop": "flows.cli.main"}
        start = [sys.executable, "-m", modules[program]] if program in modules else [sys.executable]
        return [*start, *arguments]

    @contextmanager
    def service(self, name: str) -> Iterator[None]:
        """Start a service as compose would, until its health check holds; end it afterwards."""
        about = SERVICES[name]
        settings = {key: self.here(value) for key, value in about["environment"].items()}
        log = (self.world.root / f"{name}.log").open("wb")
        process = subprocess.Popen(
            self.command(about["command"]),
            env={**self.world.environment, **settings},
            cwd=self.world.root,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            check = self.command(about["healthcheck"]["test"][1:])
            deadline = time.monotonic() + STARTS_S
            while subprocess.run(check, capture_output=True).returncode:
                said = (self.world.root / f"{name}.log").read_text()[-2000:]
                assert process.poll() is None, f"{name} ended: {said}"
                assert time.monotonic() < deadline, f"{name} is not healthy: {said}"
                time.sleep(1)
            yield
        finally:
            end_session(process.pid, 30)


def test_an_experiment_runs_on_the_services_of_compose(tmp_path: Path) -> None:
    with postgres(("prefect", "mlflow")) as database, ExitStack() as started:
        place = Place(tmp_path / "root", int(database.rpartition(":")[2]))
        place.world.environment["PREFECT_HOME"] = str(place.world.root / "prefect")
        for name in ("prefect", "mlflow", "worker"):
            started.enter_context(place.service(name))
        servers = (f"http://127.0.0.1:{place.ports[port]}" for port in ("4200", "5000"))
        prefect = Prefect(*servers, SECRETS["PREFECT_LOGIN"])
        run = prefect.trigger("experiment/experiment", {"name": "r", "iterations": 1})
        assert run["state_type"] == "COMPLETED", run["state"]
        login = base64.b64encode(f"admin:{SECRETS['MLFLOW_PASSWORD']}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{place.ports['5000']}/api/2.0/mlflow/runs/search",
            json.dumps({"experiment_ids": ["1"]}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Basic {login}"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            found = {r["info"]["run_name"]: r for r in json.load(response)["runs"]}
    assert set(found) == {"r", "r/i0", "r/i1"}
    metrics = {m["key"]: m["value"] for m in found["r"]["data"]["metrics"]}
    assert metrics["greedy"] == 0.5
    assert list((place.world.root / "artifacts").rglob("summary.json"))
