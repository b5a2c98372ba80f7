"""What a person sees of a run in Prefect: progress bars, a table an iteration, links to MLflow.

Prefect being away delays the picture and never the run: no function here raises because of it.
"""

import contextvars
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.settings import PREFECT_UI_URL

from tasks.watch import Progress
from training.algorithms.alarms import Alarm

log = logging.getLogger("anchorloop")

LONG_S = 3.0
"""A stage that runs longer than this gets a progress bar."""
EVERY_S = 2.0
AFTER_TROUBLE_S = 60.0
LAST_WORD_S = 3.0
"""How long the end of a stage waits for its bar to be full."""


def artifact_key(*parts: object) -> str:
    """A Prefect artifact key (lower case, digits and dashes) from names."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(str(part) for part in parts).lower()).strip("-")


class ProgressBar:
    """A progress artifact of one stage, made late and updated seldom.

    It is sent by a thread: a server that is away holds up nobody who watches the stage. A context
    manager; after its end the thread, if a request still hangs, says nothing more.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._id: UUID | None = None
        self._next = time.monotonic() + LONG_S
        self._sending: threading.Thread | None = None
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(LAST_WORD_S)
        finally:
            self._over = True

    def __call__(self, progress: Progress) -> None:
        """Show the progress if it is time to, or if the stage is through."""
        through = self._id is not None and progress.share >= 1.0
        if not through and time.monotonic() < self._next:
            return
        if not self._wait(LAST_WORD_S if through else 0.0):
            return
        self._next = time.monotonic() + EVERY_S
        context = contextvars.copy_context()  # which task run it belongs to
        self._sending = threading.Thread(
            target=lambda: context.run(self._send, progress), name="progress", daemon=True
        )
        self._sending.start()

    def _wait(self, seconds: float) -> bool:
        if self._sending is not None:
            self._sending.join(seconds)
        return self._sending is None or not self._sending.is_alive()

    def _send(self, progress: Progress) -> None:
        try:
            if self._id is None:
                made: Any = create_progress_artifact(100 * progress.share, self._key, str(progress))
                self._id = made
            else:
                update_progress_artifact(self._id, 100 * progress.share, str(progress))
        except Exception as error:
            if not self._over:
                _trouble(error)
            self._next = time.monotonic() + AFTER_TROUBLE_S


def table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """A table artifact; numbers are rounded for reading."""
    try:
        create_table_artifact([_readable(row) for row in rows], key, description)
    except Exception as error:
        _trouble(error)


def link(key: str, address: str, text: str) -> bool:
    """A link artifact; whether Prefect took it."""
    try:
        create_link_artifact(address, text, key)
    except Exception as error:
        _trouble(error)
        return False
    return True


class AlarmPage:
    """A page of a stage's alarms, made at the first one and added to by each."""

    def __init__(self, key: str, stage: str) -> None:
        self._key, self._stage = f"{key}-alarms", stage
        self._alarms: list[Alarm] = []

    def __call__(self, alarm: Alarm) -> None:
        """Add an alarm."""
        self._alarms.append(alarm)
        lines = [f"| {a.step} | {a.level} | {a.name} | {a.sentence} |" for a in self._alarms]
        head = ["| step | level | alarm | what was seen |", "| --- | --- | --- | --- |"]
        text = "\n".join([f"### ⚠ Alarms of {self._stage}", "", *head, *lines])
        try:
            create_markdown_artifact(text, self._key, f"Warning: {alarm.sentence}")
        except Exception as error:
            _trouble(error)


def flow_page(flow_run: str) -> str | None:
    """Address of a flow run in Prefect's UI, where there is one."""
    page = PREFECT_UI_URL.value()
    return f"{page}/runs/flow-run/{flow_run}" if page else None


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def _trouble(error: Exception) -> None:
    first = str(error).partition("\n")[0]
    log.warning("Prefect did not take an artifact (%s): %s", type(error).__name__, first[:200])
