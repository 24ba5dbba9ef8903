"""`abps init`: the folder of a new center."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.exits import ExitCode

if TYPE_CHECKING:
    from abps_node.scaffold import Scaffold


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("init")(init)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="made if it does not exist")],
    center_id: Annotated[
        str | None, typer.Option("--id", help="the center's id; default: the folder's name")
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(help="an existing federation.toml; default: an example is written"),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="what `abps schema infer` wrote, for the new federation.toml"),
    ] = None,
) -> None:
    """Make the folder of a new center.

    It gets a commented center.toml, a key pair, and an example federation.toml unless one is given.
    Nothing is overwritten; what exists is named and left alone. Exit code 1 if all of it existed.
    """
    from abps_node.scaffold import scaffold

    made = scaffold(directory, center_id, federation, schema)
    for path in made.written:
        typer.echo(f"wrote  {path}")
    for path in made.kept:
        typer.echo(f"kept   {path} (it was there)")
    if not made.written:
        typer.echo("Nothing was written: all of it was there.", err=True)
        raise typer.Exit(ExitCode.FAILED)
    typer.echo(_next_steps(made))


def _next_steps(made: Scaffold) -> str:
    from abps_node.config import read_toml
    from abps_node.templates import roster_entry

    lines = roster_entry(made.center_id, made.public_key).splitlines()
    entry = "".join(f"     {line}\n" for line in lines)
    data = made.center.parent / str(read_toml(made.center).get("data"))
    if made.on_roster:
        where = f"This entry stands in {made.federation}; all centers need the same roster:"
    else:
        where = f"Get this entry into {made.federation}, and into the copies of all centers:"
    return (
        f"\nNext\n"
        f"1. {where}\n"
        f"{entry}"
        f"2. Look through {made.federation} and {made.center}.\n"
        f"3. Put the patient table at {data}, with the columns of [contract.data].\n"
        f"4. abps check {made.center}\n"
        f"5. abps run {made.center}"
    )
