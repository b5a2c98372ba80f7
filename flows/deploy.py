"""Register what a Prefect server has to know: deployments, forms, work pool, the automation."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.services import POOL, ServiceError
from tasks.secrets import redact

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 180.0
QUEUE = "machine"
"""Queue of the runs that use the machine: it hands out one at a time."""


def deploy(environment: Mapping[str, str]) -> None:
    """Make the process pool and all deployments on the server that ``environment`` names.

    Raises ServiceError with the end of Prefect's own message.
    """
    _run("flows.work_pool", [POOL], environment)
    _run("prefect", ["--no-prompt", "deploy", "--all"], environment)
    _run("flows.form", [POOL, QUEUE], environment)


def watch_over(api: str, idle: bool = False) -> float:
    """Have killed flow runs marked Crashed by the server at ``api``: those to come and those past.

    ``idle`` says that no worker lives, so that a run which one had taken is nobody's either.
    Returns the seconds between heartbeats that the server expects.

    Raises ValueError where the setting of the heartbeats is not usable, ServiceError where the
    server refuses.
    """
    import httpx
    from prefect.client.orchestration import SyncPrefectClient

    from flows.heartbeats import listen_for_silence
    from tasks.heartbeat import interval
    from tasks.home import home
    from tasks.zombies import close_pending, close_undriven

    try:
        login = os.environ.get("PREFECT_API_AUTH_STRING")
        with SyncPrefectClient(api=api, auth_string=login) as client:
            listen_for_silence(client)
            close_undriven(client, home().runs)
            if idle:
                close_pending(client, POOL)
            return interval()
    except httpx.HTTPError as error:
        raise ServiceError(f"the Prefect server at {api} refused: {error}") from None


def _run(module: str, arguments: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise ServiceError(f"{module} {' '.join(arguments[:2])} failed: {redact(said)}")
