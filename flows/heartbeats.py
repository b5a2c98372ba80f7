"""The automation by which Prefect notices that the process of a flow run is gone.

A server of one's own never ends a run by itself: a killed process leaves it Running, and what is
Running cannot be retried. So silence after a heartbeat (``tasks.heartbeat``) makes it Crashed.
"""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from tasks.heartbeat import EVENT, SILENT, window

NAME = "anchorloop: no sign of life"
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")


def silence_automation() -> AutomationCore:
    """Crash a flow run that was heard of once and then neither beats nor ends in time."""
    return AutomationCore(
        name=NAME,
        description="A flow run whose process is gone becomes Crashed, so that it can be retried.",
        enabled=True,
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={EVENT},
            expect={EVENT, *(f"prefect.flow-run.{state}" for state in _ENDS)},
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=window()),
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=SILENT)],
    )


def listen_for_silence(client: SyncPrefectClient) -> bool:
    """Make the automation, or bring the one that is there up to date; whether that was needed.

    One that is as it should be is left alone, for changing it would forget who was heard of.
    """
    wanted = silence_automation()
    found = client.read_automations_by_name(NAME)
    for automation in found[1:]:
        client.delete_automation(automation.id)
    if not found:
        client.create_automation(wanted)
        return True
    now = AutomationCore.model_validate(
        found[0].model_dump(include=set(AutomationCore.model_fields))
    )
    if now == wanted:
        return False
    client.update_automation(found[0].id, wanted)
    return True
