"""`abps campaign`: begin another one, with what was learned of the peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("campaign")(campaign)


def campaign(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="a center.toml, or a folder that holds one")
    ],
    discount: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="share of the evidence in the beliefs that is kept: 0 to 1"
        ),
    ],
) -> None:
    """Begin another campaign: new label period or refreshed data, with discounted beliefs.

    Put the new table and the new federation.toml in place before, and stop the center. The former
    state is kept under another name; no patient changes splits, or nothing is done.
    """
    from abps_node.campaign import begin_campaign
    from abps_node.config import load_center_config

    config = load_center_config(path / "center.toml" if path.is_dir() else path)
    begun = begin_campaign(config, discount)
    typer.echo(f"the state of {begun.rounds} rounds lies in {begun.archive}")
    for peer, belief in sorted(begun.beliefs.items()):
        typer.echo(f"{peer}: mean {belief.mean:.3f}, n {belief.n}")
    typer.echo(f"{config.id} begins at round 1 with start {begun.next_start}: abps run {path}")
