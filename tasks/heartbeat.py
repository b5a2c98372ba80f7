"""Signs of life of a flow run, so that a run whose process is gone can be told from a slow one.

Prefect has heartbeats of its own, but none more often than every 30 s, at the price of a second at
the end of every flow, and under a name that all flows of a server share. These end at once and are
ours alone. The automation that listens to them is made by ``flows.heartbeats``.
"""

import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import Iterator
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.states import Running, State

from tasks.home import HEARTBEAT
from training.errors import ConfigError

log = logging.getLogger("anchorloop")

EVENT = "anchorloop.heartbeat"
SILENT = (
    "no sign of life: its process is gone, or could not reach the server; Retry goes on with it"
)
"""Message of the state Crashed that silence leads to."""

MISSED = 3
"""So many missed heartbeats in a row mean that the process is gone."""
SHORTEST_S = 10.0 / MISSED
"""Prefect's automations wait for nothing shorter than 10 s."""


def interval() -> float:
    """Seconds between heartbeats: 30, or what ANCHORLOOP_HEARTBEAT_S says. Raises ConfigError."""
    text = os.environ.get(HEARTBEAT, "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST_S <= seconds <= 3600:
        raise ConfigError(f"{HEARTBEAT}={text} is not usable; give seconds, from 3.4 to 3600")
    return seconds


def window() -> float:
    """Seconds of silence after which a flow run counts as crashed."""
    return MISSED * interval()


@contextlib.contextmanager
def beating() -> Iterator[None]:
    """Send heartbeats of the flow run in which this is called, until the block ends.

    A run that was taken for dead while it lives, because the server was away for longer than the
    window, is set back to Running. Trouble with the server is never the run's.
    """
    flow_run = runtime.flow_run.id
    if not flow_run:
        yield
        return
    over = threading.Event()
    seconds = interval()
    identity = UUID(str(flow_run))
    context = contextvars.copy_context()  # which server to talk to is part of the context
    beat = threading.Thread(
        target=lambda: context.run(_beat, identity, seconds, over), name="heartbeat", daemon=True
    )
    beat.start()
    try:
        yield
    finally:
        over.set()
        beat.join(seconds)  # no state may be set here once Prefect ends the run


def _beat(flow_run: UUID, seconds: float, over: threading.Event) -> None:
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run}"}
    first = True
    while first or not over.wait(seconds):
        try:
            if not first:
                _revive(flow_run, over)
            emit_event(event=EVENT, resource=resource)
        except Exception as error:
            log.debug("heartbeat of %s: %s", flow_run, error)
        first = False


def _revive(flow_run: UUID, over: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(flow_run).state
        if state is None or not state.is_crashed() or state.message != SILENT or over.is_set():
            return
        alive: State[None] = Running(message="its process lives and the server answers again")
        client.set_flow_run_state(flow_run, alive, force=True)
    log.warning("Prefect took this run for dead while the server was away; it is Running again")
