"""`abps schema`: a first draft of the feature schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Describe the patient table.", no_args_is_help=True)


@app.callback()
def _schema() -> None:
    """Describe the patient table."""


@app.command()
def infer(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help=".csv, .csv.gz or .parquet")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="default: standard output")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="the outcome; default: a guess")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace FILE if it exists")] = False,
) -> None:
    """Draft the part [contract.data] of federation.toml from a table, to be edited.

    Kinds and levels are guessed, units left to fill in. Identifiers, dates, constants, free text
    and columns that tell the label by themselves stand behind a # with the reason. The draft names
    columns and levels of at least five rows, and no value of a patient. ``abps init --schema FILE``
    makes a center's folder with it.
    """
    from abps_node.atomic import require_free, write_text
    from abps_node.schema import draft_schema

    if out is not None:
        require_free(out, force)
    draft = draft_schema(table, label)
    if out is None:
        typer.echo(draft.text, nl=False)
        return
    write_text(out, draft.text, force=force)
    guess = f"label {draft.label!r}" if draft.label is not None else "no label found"
    typer.echo(
        f"wrote {out}: {guess}, {draft.features} features, {draft.left_out} columns left out with "
        f"the reason, {draft.to_fill_in} places to fill in"
    )
