"""`abps keys`: the own key pair gives way to a new one, with a time in which both count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change the own key pair: make the next one, and take it into use.",
)
CenterFile = Annotated[
    Path, typer.Argument(metavar="PATH", help="a center.toml, or a folder that holds one")
]


@app.command()
def rotate(
    path: CenterFile,
    until: Annotated[
        str,
        typer.Option(metavar="WHEN", help="when the present key ends: 7d, 12h, or a date"),
    ],
) -> None:
    """Make the next key pair, and say what the others need. The present one stays in use."""
    from abps_node.config import load_center_config
    from abps_node.rotation import prepare_keys

    config = load_center_config(path / "center.toml" if path.is_dir() else path)
    made = prepare_keys(config, until)
    typer.echo(f"wrote {made.secret}; {config.id} still uses the former key")
    typer.echo("Send this to all other centers; each of them runs it before the date:")
    typer.echo(f"  {made.command}")
    typer.echo("When all have: abps keys activate " + str(path))


@app.command()
def activate(path: CenterFile) -> None:
    """Take the next key pair into use, on a running daemon within a second."""
    from abps_node.config import load_center_config
    from abps_node.rotation import take_into_use

    config = load_center_config(path / "center.toml" if path.is_dir() else path)
    pair, former = take_into_use(config)
    typer.echo(f"{config.id} uses the key {pair.public} now; the former one lies in {former}")
