"""``anchorloop preflight``: can this run finish on this machine?"""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.errors import UserError


def preflight(
    profile: Annotated[str, typer.Option(help="Model and scale.")] = "tiny",
    method: Annotated[str, typer.Option(help="What is compared.")] = "anchorloop",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any value of the configuration."),
    ] = None,
) -> None:
    """Check model, disk, memory, sandbox, ports and store; status 1 if a run could not finish."""
    from flows.checks import preflight as checks
    from flows.naming import resolve
    from tasks.home import home
    from training.config_load import parse_assignments
    from training.errors import ConfigError
    from training.plan import plan

    try:
        config = resolve(profile, method, 0, None, parse_assignments(set_ or []))
        plan(config)
    except ConfigError as error:
        raise UserError(str(error)) from None
    failed = 0
    for check in checks(config, home()):
        failed += not check.good
        print(f"{'ok  ' if check.good else 'FAIL'}  {check.name:<20} {check.detail}", flush=True)
    if failed:
        print(f"{failed} of these would stop the run")
        raise typer.Exit(1)
    print("a run can finish here")
