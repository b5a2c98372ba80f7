"""What the user's environment says about our servers: databases and logins, by their own names.

Everything else about a server is decided by its root folder. A secret goes to the one process that
needs it, by its environment: command lines can be read by every user of a machine.
"""

import importlib.util
import secrets
from collections.abc import Mapping

from tasks.home import Home
from tasks.secrets import without_secrets
from tasks.tracking import make_store

_PREFECT_SERVER = (
    "PREFECT_SERVER_DATABASE_",
    "PREFECT_API_DATABASE_",
    "PREFECT_SERVER_API_AUTH_STRING",
)
_MLFLOW_LOGIN = ("MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_AUTH_CONFIG_PATH")


class SettingsError(RuntimeError):
    """A server cannot be started as the environment asks; one sentence says why."""


def prefect_client(given: Mapping[str, str]) -> dict[str, str]:
    """The login of our own processes at the Prefect server: the server's own, unless given."""
    login = given.get("PREFECT_API_AUTH_STRING") or given.get("PREFECT_SERVER_API_AUTH_STRING")
    return {"PREFECT_API_AUTH_STRING": login} if login else {}


def prefect_server(given: Mapping[str, str]) -> dict[str, str]:
    """Environment of a Prefect server: its database and login, and no secret of others."""
    own = {name: value for name, value in given.items() if name.startswith(_PREFECT_SERVER)}
    return {**without_secrets(given), **own}


def mlflow_server(place: Home, given: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the MLflow server on this root's store, whose tables are made.

    Asks for a login where ``MLFLOW_AUTH_ADMIN_PASSWORD`` or ``MLFLOW_AUTH_CONFIG_PATH`` is given.
    Raises SettingsError when the store cannot be opened or a package is absent.
    """
    arguments = ["--default-artifact-root", place.tracking_artifacts.as_uri()]
    environment = {
        "MLFLOW_BACKEND_STORE_URI": place.tracking_uri,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    try:
        make_store(place.tracking_uri, place.tracking_artifacts)
    except ImportError as error:
        raise SettingsError(
            f"MLFLOW_BACKEND_STORE_URI needs a package that is absent ({error}); "
            'for PostgreSQL run `.venv/bin/pip install "psycopg[binary]"`'
        ) from error
    if any(given.get(name) for name in _MLFLOW_LOGIN):
        if importlib.util.find_spec("flask_wtf") is None:
            raise SettingsError(
                "an MLflow server that asks for a login needs the package Flask-WTF; "
                "run `.venv/bin/pip install Flask-WTF`"
            )
        arguments += ["--app-name", "basic-auth"]
        environment["MLFLOW_AUTH_CONFIG_PATH"] = given.get(
            "MLFLOW_AUTH_CONFIG_PATH"
        ) or _login_settings(place)
        environment["MLFLOW_FLASK_SERVER_SECRET_KEY"] = given.get(
            "MLFLOW_FLASK_SERVER_SECRET_KEY"
        ) or secrets.token_hex(32)
    return arguments, environment


def _login_settings(place: Home) -> str:
    """A settings file of our own: MLflow's would keep its users in the current folder."""
    folder = place.tracking_artifacts.parent
    file = folder / "login.ini"
    users = f"database_uri = sqlite:///{folder / 'login.db'}"
    lines = ("[mlflow]", "default_permission = READ", "admin_username = admin", users)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)
