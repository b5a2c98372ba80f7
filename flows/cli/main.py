"""The `anchorloop` command. Commands are registered here and nowhere else.

A command's module imports what is heavy inside its functions, so that `--help` and `explain`
start at once.
"""

from __future__ import annotations

import os
import sys

import typer

from flows.cli import (
    adopt,
    clean,
    compare,
    compare_runs,
    evaluate,
    explain,
    fork,
    grade,
    preflight,
    run,
    services,
    status,
)
from flows.cli.errors import UserError
from tasks.home import QUIET

app = typer.Typer(
    name="anchorloop",
    help="Self-evolving tool-integrated agents with a frozen historical reference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(explain.app, name="explain")
app.command("run")(run.run)
app.command("fork")(fork.fork)
app.command("up")(services.up)
app.command("down")(services.down)
app.command("worker")(services.worker)
app.command("status")(status.status)
app.command("clean")(clean.clean)
app.command("preflight")(preflight.preflight)
app.command("adopt")(adopt.adopt)
app.command("grade")(grade.grade)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("compare-runs")(compare_runs.compare_runs)


def main() -> None:
    """Run the command line.

    A user's mistake ends in one sentence and exit status 2, a full disk in one and status 1.
    """
    os.environ.update(QUIET)  # before a library that it concerns is imported
    try:
        app()
    except UserError as error:
        print(f"anchorloop: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        from training.disk import REMEDY, is_full

        if not is_full(error):
            raise
        print(f"anchorloop: the disk is full ({error}); {REMEDY}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
