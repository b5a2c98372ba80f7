"""``anchorloop preflight``: can this run finish on this machine?"""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.errors import UserError


def preflight(
    profile: Annotated[str, typer.Option(help="Model and scale.")] = "tiny",
    method: Annotated[str, typer.Option(help="What is compared.")] = "anchorloop",
    trainer: Annotated[
        str | None,
        typer.Option(help="torch or verl; the same as --set trainer.backend=…."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any value of the configuration."),
    ] = None,
    launcher: Annotated[str, typer.Option(help="Where stages run: local or docker.")] = "local",
    image: Annotated[
        str | None, typer.Option(help="Image of --launcher docker; default: anchorloop-gpu.")
    ] = None,
) -> None:
    """Check model, disk, memory, GPUs, sandbox and more; status 1 if a run could not finish."""
    from flows.checks import preflight as checks
    from flows.naming import assigned, resolve
    from tasks.home import home
    from tasks.launchers import launcher as place_of
    from training.config_load import parse_assignments
    from training.errors import ConfigError
    from training.plan import plan

    try:
        config = resolve(profile, method, 0, None, parse_assignments(assigned(set_, trainer)))
        plan(config)
        where = place_of(launcher, image)
    except (ConfigError, ValueError) as error:
        raise UserError(str(error)) from None
    failed = 0
    for check in checks(config, home(), where):
        failed += not check.good
        print(f"{'ok  ' if check.good else 'FAIL'}  {check.name:<20} {check.detail}", flush=True)
    if failed:
        print(f"{failed} of these would stop the run")
        raise typer.Exit(1)
    print("a run can finish here")
