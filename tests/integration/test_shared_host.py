"""Two users on one machine, and secrets in their environment: nothing meets, listens or leaks."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.integration.flow_world import STUBS, World

ANY_PROCESS = re.compile(r"\d+")
LISTENING = "0A"
SECRETS = {
    "HF_TOKEN": "canary-hub",
    "AWS_SECRET_ACCESS_KEY": "canary-cloud",
    "OPENAI_API_KEY": "canary-key",
    "MLFLOW_TRACKING_PASSWORD": "canary-tracking",
    "MLFLOW_TRACKING_TOKEN": "canary-token",
    "PREFECT_SERVER_API_AUTH_STRING": "team:canary-prefect",
    "PREFECT_API_AUTH_STRING": "team:canary-prefect",
    "PREFECT_API_KEY": "canary-cloud-key",
    "HTTPS_PROXY": "http://user:canary-proxy@127.0.0.1:9",
}
TELLS = """
import os, sys
if {stage!r} in sys.argv:
    print(dict(os.environ), flush=True)
"""


def listening(root: Path) -> set[tuple[str, int]]:
    """(address in hex, port) of every TCP socket on which a process of this root listens."""
    sockets = {}
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                address, _, port = fields[1].partition(":")
                sockets[f"socket:[{fields[9]}]"] = (address, int(port, 16))
    found = set()
    for entry in Path("/proc").iterdir():
        if not ANY_PROCESS.fullmatch(entry.name):
            continue
        try:
            if str(root).encode() not in (entry / "environ").read_bytes():
                continue
            opened = [os.readlink(link) for link in (entry / "fd").iterdir()]
        except OSError:
            continue
        found |= {sockets[name] for name in opened if name in sockets}
    return found


@pytest.mark.system
@pytest.mark.timeout(1800)
def test_two_roots_side_by_side_on_loopback_alone(tmp_path: Path) -> None:
    worlds = [World(tmp_path / name, stubs=True) for name in ("one", "two")]
    arguments = ("run", "--iterations", "1", "--name", "same", "--method")
    seen: list[set[tuple[str, int]]] = []
    try:
        for world in worlds:
            up = world.cli("up", "--no-worker")
            assert up.returncode == 0, up.stderr
        runs = [
            subprocess.Popen(
                world.command(*arguments, method),
                cwd=world.root,
                env=world.environment,
                stdout=subprocess.DEVNULL,
                stderr=(world.root / "said.log").open("wb"),
            )
            for world, method in zip(worlds, ("anchorloop", "agent0"), strict=True)
        ]
        seen = [listening(world.root) for world in worlds]
        for run, world in zip(runs, worlds, strict=True):
            assert run.wait(600) == 0, (world.root / "said.log").read_text()
    finally:
        for world in worlds:
            world.cli("down")
    for sockets in seen:
        assert len(sockets) >= 2, "Prefect and MLflow listen"
        assert {address for address, _ in sockets} == {"0100007F"}
    assert not {port for _, port in seen[0]} & {port for _, port in seen[1]}
    for world, method in zip(worlds, ("anchorloop", "agent0"), strict=True):
        assert world.summary("same")["method"] == method
        assert len(world.starts) == 2 + (6 if method == "anchorloop" else 4)
        for folder in (".anchorloop", ".anchorloop/store", ".anchorloop/mlflow", "runs/same"):
            assert stat.S_IMODE((world.root / folder).stat().st_mode) == 0o700


@pytest.mark.system
@pytest.mark.timeout(1800)
def test_secrets_of_the_environment_are_in_no_file(tmp_path: Path) -> None:
    world = World(tmp_path / "root", stubs=True)
    site = world.root / "site" / "sitecustomize.py"
    site.write_text(STUBS + TELLS.format(stage="executor"))
    done = world.cli("run", "--iterations", "1", "--name", "r", **SECRETS)
    assert done.returncode == 0, done.stderr
    failed = world.cli(
        *("run", "--iterations", "0", "--name", "f"),
        **SECRETS,
        STUB_FAIL="base_model:0:bug!",
        ANCHORLOOP_STORE=str(world.root / "other"),
    )
    assert failed.returncode == 1
    files = [path for path in world.root.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"mlflow.db", "prefect.db", "run.json", "prefect.log", "output.log"} <= names
    logs = [path.read_text() for path in files if path.name == "output.log"]
    assert [text for text in logs if "ANCHORLOOP_HOME" in text], "the executor told nothing"
    for path in files:
        content = path.read_bytes()
        assert b"canary" not in content, f"{path}: {content[content.index(b'canary') :][:40]!r}"
    assert "canary" not in done.stdout + done.stderr + failed.stdout + failed.stderr


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--tracking-uri", "http://u:canary@127.0.0.1:1"), {}),
        (("--tracking-uri", "postgresql://u:canary@127.0.0.1/db"), {}),
        ((), {"MLFLOW_TRACKING_URI": "http://u:canary@127.0.0.1:1"}),
    ],
)
def test_an_address_that_carries_a_password_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    world = World(tmp_path / "root", stubs=True)
    done = world.cli("run", *arguments, **environment)
    assert done.returncode == 2
    assert "u:***@127.0.0.1" in done.stderr
    assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in done.stderr
    assert "canary" not in done.stderr
    assert not list(world.root.rglob("run.json"))


def test_a_worker_must_be_told_for_whom(tmp_path: Path) -> None:
    done = World(tmp_path / "root", stubs=True).cli("worker")
    assert done.returncode == 2
    assert done.stderr.startswith("anchorloop: PREFECT_API_URL is not set; set it to the team's")


def test_a_new_run_reports_where_the_environment_says(tmp_path: Path) -> None:
    world = World(tmp_path / "root", stubs=True)
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    done = world.cli("run", "--iterations", "0", "--name", "r", MLFLOW_TRACKING_URI=elsewhere)
    assert done.returncode == 0, done.stderr
    settings = json.loads((world.root / "runs" / "r" / "run.json").read_text())
    assert settings["tracking_uri"] == elsewhere
    assert (tmp_path / "elsewhere.db").exists()
    assert not (world.root / ".anchorloop" / "mlflow" / "mlflow.db").exists()
