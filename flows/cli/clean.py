"""``anchorloop clean``: list what may go from this machine, and delete it with --yes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from tasks.maintenance import Survey
    from tasks.retention import Deletion, Kind


def clean(
    yes: Annotated[bool, typer.Option("--yes", help="Delete what is listed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list; the default.")] = False,
    only: Annotated[
        str | None, typer.Option(help="Kinds, with commas between; default: all but unclaimed.")
    ] = None,
    keep_raw: Annotated[
        bool, typer.Option("--keep-raw", help="Keep raw records of finished experiments.")
    ] = False,
    spent_anchors: Annotated[
        bool,
        typer.Option(
            "--spent-anchors",
            help="Also weights that only anchors of finished iterations name.",
        ),
    ] = False,
    running_containers: Annotated[
        bool,
        typer.Option(
            "--running-containers",
            help="Also containers that still compute though nobody drives their run.",
        ),
    ] = False,
    damaged_days: Annotated[
        float, typer.Option(min=0, help="Age from which artifacts that were set aside may go.")
    ] = 30.0,
) -> None:
    """List what may go, why, and how large it is; delete it only with --yes.

    What stays and why: docs/running.md, "Keeping the disk small".
    """
    from tasks.home import home
    from tasks.maintenance import Wanted, carry_out, survey

    if yes and dry_run:
        raise UserError("--yes deletes and --dry-run does not; give one of them")
    wanted = Wanted(_kinds(only, keep_raw), spent_anchors, running_containers, damaged_days)
    place = home()
    listed = survey(place, wanted, full=yes)
    _show(listed)
    if not listed.deletions:
        return
    if not yes:
        print("nothing was deleted; `anchorloop clean --yes` with the same options does it")
        return
    failed = []

    def tell(deletion: Deletion, outcome: str) -> None:
        if outcome != "done":
            failed.append(outcome)
            print(f"{deletion.what}: {outcome}")

    freed = carry_out(place, listed, tell)
    print(f"freed {freed / 1e9:.3f} GB")
    if any(outcome.startswith("failed") for outcome in failed):
        raise typer.Exit(1)


def _kinds(only: str | None, keep_raw: bool) -> list[Kind]:
    from tasks.retention import KINDS, USUAL

    chosen = [name.strip() for name in only.split(",")] if only else list(USUAL)
    for name in chosen:
        if name not in KINDS:
            raise UserError(f"kind '{name}' does not exist; choose from {', '.join(KINDS)}")
    return [name for name in KINDS if name in chosen and not (keep_raw and name == "raw")]


def _show(listed: Survey) -> None:
    from rich.table import Table

    from flows.cli.tables import console

    if listed.deletions:
        table = Table()
        for column in ("kind", "what", "why"):
            table.add_column(column, overflow="fold")
        table.add_column("MB", justify="right")
        for deletion in listed.deletions:
            size = f"{deletion.bytes / 1e6:.1f}" if deletion.bytes else "–"
            table.add_row(deletion.kind, deletion.what, deletion.reason, size)
        total = sum(deletion.bytes for deletion in listed.deletions)
        table.add_section()
        table.add_row("", f"{len(listed.deletions)} in all", "", f"{total / 1e6:.1f}")
        console().print(table)
    else:
        print("nothing to delete")
    for note in listed.notes:
        print(f"note: {note}")
