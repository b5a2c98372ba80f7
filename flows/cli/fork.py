"""``anchorloop fork``: a new run with the configuration of another one, changed."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.errors import UserError


def fork(
    run: Annotated[str, typer.Argument(help="Run whose configuration the new one begins with.")],
    name: Annotated[str, typer.Option(help="Name of the new run.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What differs."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Another number of iterations.")] = None,
) -> None:
    """Run a changed copy of a run; stages that are equal are shared, not computed again."""
    from flows.cli.drive import drive
    from tasks.forks import create_fork
    from tasks.runs import RunError
    from training.config_load import parse_assignments
    from training.errors import ConfigError

    chosen = {"seed": seed, "iterations": iterations}
    chosen = {key: value for key, value in chosen.items() if value is not None}
    try:
        overrides = parse_assignments(set_ or [])
        create_fork(run, name, {**overrides, **chosen})
    except (ConfigError, RunError) as error:
        raise UserError(str(error)) from None
    drive("fork", {"run": run, "name": name, "overrides": overrides or None, **chosen}, name)
