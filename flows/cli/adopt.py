"""``anchorloop adopt``: keep an artifact after a code change that cannot alter its bytes."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.errors import UserError


def adopt(
    stage: Annotated[str, typer.Argument(help="Stage whose artifacts are kept, or `all`.")],
    run: Annotated[str, typer.Option(help="Run whose plan they belong to.")],
    reason: Annotated[str, typer.Option(help="Why the change cannot alter results.")],
) -> None:
    """Relabel the artifacts of a run's stage for the code as it is now.

    Both code fingerprints and the reason are recorded beside the artifact.
    """
    from tasks.adoption import adopt_stage
    from tasks.runs import RunError
    from training.errors import InfraError

    try:
        adopted = adopt_stage(run, stage, reason)
    except (RunError, InfraError) as error:
        raise UserError(str(error)) from None
    for name, old, new in adopted:
        print(f"{name}: {old[:12]} is now also {new[:12]}")
    if not adopted:
        print(f"nothing to adopt: the code of '{stage}' in run '{run}' has not changed")
