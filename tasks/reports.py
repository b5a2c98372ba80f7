"""What a person sees of a run in Prefect: progress bars, a table an iteration, links to MLflow.

Prefect being away delays the picture and never the run: no function here raises because of it.
"""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from tasks.watch import Progress

log = logging.getLogger("anchorloop")

LONG_S = 3.0
"""A stage that runs longer than this gets a progress bar."""
EVERY_S = 2.0
AFTER_TROUBLE_S = 60.0


def artifact_key(*parts: object) -> str:
    """A Prefect artifact key (lower case, digits and dashes) from names."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(str(part) for part in parts).lower()).strip("-")


class ProgressBar:
    """A progress artifact of one stage, made late and updated seldom."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._id: UUID | None = None
        self._next = time.monotonic() + LONG_S

    def __call__(self, progress: Progress) -> None:
        """Show the progress if it is time to, or if the stage is through."""
        through = self._id is not None and progress.share >= 1.0
        if not through and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        try:
            if self._id is None:
                made: Any = create_progress_artifact(100 * progress.share, self._key, str(progress))
                self._id = made
            else:
                update_progress_artifact(self._id, 100 * progress.share, str(progress))
        except Exception as error:
            _trouble(error)
            self._next = time.monotonic() + AFTER_TROUBLE_S


def table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """A table artifact; numbers are rounded for reading."""
    try:
        create_table_artifact([_readable(row) for row in rows], key, description)
    except Exception as error:
        _trouble(error)


def link(key: str, address: str, text: str) -> None:
    """A link artifact."""
    try:
        create_link_artifact(address, text, key)
    except Exception as error:
        _trouble(error)


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def _trouble(error: Exception) -> None:
    first = str(error).partition("\n")[0]
    log.warning("Prefect did not take an artifact (%s): %s", type(error).__name__, first[:200])
