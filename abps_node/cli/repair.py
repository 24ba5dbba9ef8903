"""`abps repair`: a center that the others take for an old copy of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("repair")(repair)


def repair(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="a state directory, a center.toml, or a folder that holds one"
        ),
    ],
    start: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="the highest start that anybody has seen; default: what is known",
        ),
    ] = None,
) -> None:
    """Raise the start number of a center whose state was lost or came from an older backup.

    For a center that ends with exit code 15 although no other copy of it runs. Works on a stopped
    center; run it once with `abps run` before, so that the others can say what they have seen.
    """
    from abps_node.cli.state_path import state_dir_of
    from abps_node.store.repair import repair as raise_number

    done = raise_number(state_dir_of(path), start)
    for peer, claim in done.claims.items():
        typer.echo(f"{peer} has seen start {claim}")
    if done.recorded > done.before:
        typer.echo(f"the record of what left this center knows start {done.recorded}")
    following = f"the next start is {done.after + 1}"
    typer.echo(f"start number raised from {done.before} to {done.after}; {following}")
