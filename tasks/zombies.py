"""Flow runs of a driver that was killed with -9: Prefect still shows them as running.

Whoever holds a run's driver lock knows that nobody else drives it, so every other flow run of it
that claims to run does not; it is marked Crashed, which also makes it retryable. The same holds
where nobody has the lock. A flow run's tag says whose it is: on a shared server another user's run
may have the same name.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed, State

from tasks.runs import Run, RunError, RunSettings, driver, read_settings

log = logging.getLogger("anchorloop")

_RUNNING = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING]))
_STARTING = timedelta(seconds=60)
"""A flow run is Running for a moment before it has the lock of its run."""


def claim(run: Run) -> None:
    """Tag this flow run as one of the run's. Trouble with the server is logged and never raised."""
    if not runtime.flow_run.id:
        return
    try:
        with get_client(sync_client=True) as client:
            identity = UUID(str(runtime.flow_run.id))
            tags = {*client.read_flow_run(identity).tags, _tag(run.settings)}
            client.update_flow_run(identity, tags=sorted(tags))
    except Exception as error:
        log.warning("this flow run could not be tagged: %s", error)


def close_zombies(run: Run) -> int:
    """Mark running flow runs of the run, except this one, as Crashed; returns how many.

    Trouble with the server is logged and never raised.
    """
    try:
        with get_client(sync_client=True) as client:
            return _close(client, _tag(run.settings), str(runtime.flow_run.id))
    except Exception as error:
        log.warning("earlier flow runs could not be closed: %s", error)
        return 0


def _tag(settings: RunSettings) -> str:
    return f"run:{settings.uid[:12]}"


def _close(client: SyncPrefectClient, tag: str, own: str) -> int:
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag]), state=_RUNNING)
    )
    zombies = [flow_run for flow_run in found if str(flow_run.id) != own]
    return _crash(
        client, zombies, "its driver was killed; a later start of the run went on with it"
    )


def close_undriven(client: SyncPrefectClient, runs: Path) -> int:
    """Mark the running flow runs of this machine's runs that nobody drives; returns how many.

    ``runs`` is the folder of the run folders. Those that began just now are left alone.
    """
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter(state=_RUNNING))
    before = datetime.now(UTC) - _STARTING
    zombies = []
    for flow_run in found:
        folder = runs / flow_run.name.partition("/")[0]
        old = flow_run.start_time is not None and flow_run.start_time < before
        if old and _is_of(flow_run, folder) and driver(folder) is None:
            zombies.append(flow_run)
    return _crash(
        client, zombies, "its process is gone; Retry, or the same command, goes on with it"
    )


def close_pending(client: SyncPrefectClient, pool: str) -> int:
    """Mark what a worker of the pool had taken and not begun as Crashed; returns how many.

    It holds its place in the queue until it ends. Call this where no worker of the pool lives.
    """
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
        ),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )
    return _crash(client, found, "its worker was killed before it began; Retry begins it")


def _is_of(flow_run: FlowRun, folder: Path) -> bool:
    try:
        return _tag(read_settings(folder)) in flow_run.tags
    except RunError:
        return False


def _crash(client: SyncPrefectClient, flow_runs: Sequence[FlowRun], why: str) -> int:
    zombies = [flow_run.id for flow_run in flow_runs]
    if not zombies:
        return 0
    crashed: State[None] = Crashed(message=why)
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=zombies)),
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING]))
        ),
    )
    for task_run in tasks:
        client.set_task_run_state(task_run.id, crashed, force=True)
    for identity in zombies:
        client.set_flow_run_state(identity, crashed, force=True)
    return len(zombies)
