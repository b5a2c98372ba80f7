"""Flow runs of a driver that was killed with -9: Prefect still shows them as running.

Whoever holds a run's driver lock knows that nobody else drives it, so every other flow run of its
names that claims to run does not; it is marked Crashed, which also makes it retryable.
"""

import logging
from collections.abc import Sequence

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.states import Crashed, State

log = logging.getLogger("anchorloop")


def close_zombies(names: Sequence[str], own: str | None) -> int:
    """Mark running flow runs of these names, except ``own``, as Crashed; returns how many.

    Trouble with the server is logged and never raised.
    """
    try:
        with get_client(sync_client=True) as client:
            return _close(client, names, own)
    except Exception as error:
        log.warning("earlier flow runs could not be closed: %s", error)
        return 0


def _close(client: SyncPrefectClient, names: Sequence[str], own: str | None) -> int:
    running = [StateType.RUNNING]
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            name=FlowRunFilterName(any_=list(names)),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=running)),
        )
    )
    zombies = [flow_run.id for flow_run in found if str(flow_run.id) != own]
    if not zombies:
        return 0
    crashed: State[None] = Crashed(
        message="its driver was killed; a later start of the run went on with it"
    )
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=zombies)),
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=running))
        ),
    )
    for task_run in tasks:
        client.set_task_run_state(task_run.id, crashed, force=True)
    for flow_run in zombies:
        client.set_flow_run_state(flow_run, crashed, force=True)
    return len(zombies)
