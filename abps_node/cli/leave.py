"""`abps leave`: a running center leaves for good, and the others record it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

POLL_S: Final = 0.1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("leave")(leave)


def leave(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="a center.toml, or a folder that holds one")
    ],
    wait: Annotated[float, typer.Option(min=0.0, help="seconds to wait for its end")] = 30.0,
) -> None:
    """Have the running daemon leave: sessions end with their final word, nobody waits for it.

    It says goodbye to everybody it has met and ends with code 0. Started again it is back.
    """
    from abps_node.config import load_center_config
    from abps_node.errors import NodeError
    from abps_node.members_edit import ask_to_leave
    from abps_node.store.reader import Reader

    config = load_center_config(path / "center.toml" if path.is_dir() else path)
    reader = Reader(config.state_dir)
    if reader.condition() not in ("running", "elsewhere"):
        raise NodeError(f"{config.id} does not run, so it cannot say goodbye; the others see that")
    ask_to_leave(config)
    deadline = time.monotonic() + wait
    while reader.condition() in ("running", "elsewhere"):
        if time.monotonic() >= deadline:
            raise NodeError(f"{config.id} still runs after {wait:g} s; it was asked to leave")
        time.sleep(POLL_S)
    typer.echo(f"{config.id} has left after round {reader.status().last_round}")
