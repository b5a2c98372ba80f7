"""Tidy up after ended processes and keep the store small; a dry run unless told otherwise."""

from typing import Any

from prefect import flow
from pydantic import Field

from tasks import reports
from tasks.heartbeat import beating
from tasks.home import home
from tasks.maintenance import Survey, Wanted, carry_out, survey
from tasks.retention import KINDS, USUAL, Deletion, Kind

KEY = "maintenance"


@flow(name="maintenance", flow_run_name="maintenance", persist_result=False)
def maintenance(
    dry_run: bool = True,
    include: list[Kind] = list(USUAL),  # noqa: B006  the form shows the default, nobody changes it
    spent_anchors: bool = False,
    running_containers: bool = False,
    damaged_days: float = Field(30.0, ge=0),
) -> dict[str, Any]:
    """List what may go from this machine, with reasons and sizes, and delete it if told to.

    Args:
        dry_run: Only list.
        include: What to look for; see "Keeping the disk small" in docs/running.md.
        spent_anchors: Also weights that only anchors of finished iterations name.
        running_containers: Also containers that still compute though nobody drives their run.
        damaged_days: Age from which artifacts that were set aside may go.
    """
    wanted = Wanted(include, spent_anchors, running_containers, damaged_days)
    place = home()
    with beating():
        listed = survey(place, wanted, full=not dry_run)
        outcomes: dict[int, str] = {}

        def tell(deletion: Deletion, outcome: str) -> None:
            outcomes[id(deletion)] = outcome

        freed = 0 if dry_run else carry_out(place, listed, tell)
        _show(listed, outcomes)
    return {
        "listed": len(listed.deletions),
        "bytes": sum(deletion.bytes for deletion in listed.deletions),
        "freed_bytes": freed,
        "failed": [what for what in outcomes.values() if what.startswith("failed")],
        "notes": listed.notes,
    }


def _show(listed: Survey, outcomes: dict[int, str]) -> None:
    rows = [
        {
            "kind": deletion.kind,
            "what": deletion.what,
            "MB": deletion.bytes / 1e6,
            "why": deletion.reason,
            "outcome": outcomes.get(id(deletion), "listed only"),
        }
        for deletion in listed.deletions
    ]
    total = sum(deletion.bytes for deletion in listed.deletions) / 1e9
    kinds = sorted({KINDS[deletion.kind] for deletion in listed.deletions})
    said = f"{len(rows)} things, {total:.2f} GB: " + "; ".join([*kinds, *listed.notes])
    reports.table(KEY, rows or [{"kind": "nothing to delete"}], said)
