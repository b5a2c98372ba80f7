"""Register the deployments of prefect.yaml and the work pool they run in."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.services import POOL, ServiceError

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 180.0


def deploy(environment: Mapping[str, str]) -> None:
    """Make the process pool and all deployments on the server that ``environment`` names.

    Raises ServiceError with the end of Prefect's own message.
    """
    _prefect(["work-pool", "create", POOL, "--type", "process", "--overwrite"], environment)
    _prefect(["--no-prompt", "deploy", "--all"], environment)


def _prefect(arguments: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise ServiceError(f"prefect {' '.join(arguments[:2])} failed: {said}")
