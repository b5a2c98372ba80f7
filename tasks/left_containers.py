"""Containers of ours that an engine still has: which of them nobody will come back for."""

from dataclasses import dataclass
from pathlib import Path

import docker

from tasks.docker_launcher import CALL_S, Absent, asking, remove
from tasks.sandbox_containers import BESIDE


@dataclass(frozen=True)
class OurContainer:
    """A stage's container, or a supervisor beside one, as its labels describe it."""

    name: str
    run: str
    run_id: str
    stage: str
    computes: bool
    """Whether a stage runs in it."""
    place: Path
    """Something of it in the store that it belongs to."""


def our_containers() -> list[OurContainer]:
    """All that the engine has, also those that ended. Raises InfraError.

    Supervisors are listed only where their stage's container, with which they go, is gone.
    """
    with asking():
        client = docker.from_env(timeout=CALL_S)
        found = client.containers.list(all=True, filters={"label": "anchorloop.run-id"})
    stages = [c for c in found if "anchorloop.log" in c.labels]
    accompanied = {c.labels.get(BESIDE) for c in stages}
    alone = [c for c in found if c not in stages and c.labels.get(BESIDE) not in accompanied]
    return [
        OurContainer(
            name=str(container.name),
            run=container.labels.get("anchorloop.run", ""),
            run_id=container.labels["anchorloop.run-id"],
            stage=container.labels.get("anchorloop.stage", ""),
            computes=container in stages and container.status in ("running", "paused"),
            place=Path(container.labels.get("anchorloop.log") or container.labels.get(BESIDE, "")),
        )
        for container in [*stages, *alone]
    ]


def remove_container(name: str) -> None:
    """Remove a container and what is beside it, whatever it does; one that is gone is fine.

    Raises InfraError.
    """
    try:
        with asking():
            container = docker.from_env(timeout=CALL_S).containers.get(name)
    except Absent:
        return
    remove(container)
