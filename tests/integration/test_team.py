"""Both servers on PostgreSQL with logins, as a team has them; secrets stay in the environment."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.flow_world import World
from tests.integration.postgres import PASSWORD, dump, postgres, rows

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

LOGIN = "team:canary-prefect-login"
ADMIN = "canary-mlflow-admin"
SECRETS = (PASSWORD, "canary%2Fdatabase%401", "canary-prefect-login", ADMIN)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres(("prefect", "mlflow")) as where:
        yield where


@pytest.fixture
def settings(database: str) -> dict[str, str]:
    return {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{database}/prefect",
        "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
        "MLFLOW_BACKEND_STORE_URI": f"postgresql://{database}/mlflow",
        "MLFLOW_AUTH_ADMIN_PASSWORD": ADMIN,
    }


def status(url: str, login: str | None = None) -> int:
    """HTTP status of a GET."""
    request = urllib.request.Request(url)
    if login is not None:
        encoded = base64.b64encode(login.encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def holding(root: Path, secrets: tuple[str, ...]) -> list[str]:
    """Files below ``root`` that hold one of the secrets."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    contents = {path: path.read_bytes() for path in files}
    return [str(p) for p, c in contents.items() if any(s.encode() in c for s in secrets)]


def test_runs_on_postgres_with_logins(
    tmp_path: Path, database: str, settings: dict[str, str]
) -> None:
    world = World(tmp_path / "root", stubs=True)
    prefect_db, mlflow_db = (f"postgresql://{database}/{name}" for name in ("prefect", "mlflow"))
    with world.servers(login=LOGIN, **settings) as prefect:
        state = json.loads((world.root / ".anchorloop" / "services.json").read_text())
        mlflow = state["services"]["mlflow"]["url"]
        experiments = f"{mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0"
        assert status(f"{prefect.url}/api/admin/version") == 401
        assert status(f"{prefect.url}/api/admin/version", "team:wrong") == 401
        assert status(f"{prefect.url}/api/admin/version", LOGIN) == 200
        assert status(experiments) == 401
        assert status(experiments, f"admin:{ADMIN}") == 200

        run = prefect.trigger("experiment/experiment", {"name": "r", "iterations": 1})
        assert run["state_type"] == "COMPLETED", run["state"]
        lines = world.processes()
        assert len(lines) > 3
        assert not [line for line in lines if any(secret in line for secret in SECRETS)]

        client = {
            "PREFECT_API_URL": f"{prefect.url}/api",
            "MLFLOW_TRACKING_URI": mlflow,
            "MLFLOW_TRACKING_USERNAME": "admin",
            "MLFLOW_TRACKING_PASSWORD": ADMIN,
        }
        arguments = ("run", "--iterations", "0", "--name")
        refused = world.cli(*arguments, "s", **client)
        assert refused.returncode == 2
        assert "asks for a login; set PREFECT_API_AUTH_STRING" in refused.stderr
        done = world.cli(*arguments, "s", **client, PREFECT_API_AUTH_STRING=LOGIN)
        assert done.returncode == 0, done.stderr

    assert rows(prefect_db, "SELECT name, state_type FROM flow_run WHERE name = 'r/i1'") == [
        ("r/i1", "COMPLETED")
    ]
    greedy = rows(
        mlflow_db,
        "SELECT r.name, m.step, m.value FROM metrics m JOIN runs r USING (run_uuid) "
        "WHERE m.key = 'greedy' ORDER BY 1, 2",
    )
    assert greedy == [("r", 0, 0.375), ("r", 1, 0.5), ("s", 0, 0.375)]
    stored = json.loads((world.root / "runs" / "r" / "run.json").read_text())["tracking_uri"]
    assert stored == f"postgresql://anchorloop:***@{database.rpartition('@')[2]}/mlflow"
    assert holding(world.root, SECRETS) == []
    for address in (prefect_db, mlflow_db):
        content = dump(address).decode()
        assert "greedy" in content or "flow_run" in content
        assert [secret for secret in SECRETS if secret in content] == []

    again = world.cli("run", "--iterations", "1", "--name", "r")  # without the settings
    assert again.returncode == 2
    assert "whose password is not stored; set MLFLOW_BACKEND_STORE_URI" in again.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("MLFLOW_BACKEND_STORE_URI", "the MLflow store postgresql://anchorloop:***@127.0.0.1"),
        ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "the prefect server ended while starting; see"),
    ],
)
def test_a_wrong_password_is_one_sentence_without_it(
    tmp_path: Path, settings: dict[str, str], name: str, sentence: str
) -> None:
    world = World(tmp_path / "root", stubs=True)
    done = world.cli("up", **{name: settings[name].replace("canary", "canary-wrong")})
    world.cli("down")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"anchorloop: {sentence}")
    assert "canary" not in done.stderr + done.stdout
    assert holding(world.root, ("canary-wrong",)) == []
    assert world.left() == []
