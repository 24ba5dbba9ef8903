"""`abps peers`: what is known of them, and who is one: add, revoke."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from abps_node.cli.read import Json, Where

if TYPE_CHECKING:
    from abps_node.config import CenterConfig
    from abps_node.membership import Membership

CenterFile = Annotated[
    Path, typer.Argument(metavar="PATH", help="a center.toml, or a folder that holds one")
]


class _ListByDefault(TyperGroup):
    """``abps peers PATH`` is ``abps peers list PATH``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The belief over every peer, and what is known of it; or who is a peer: add, revoke.",
)


@app.command("list")
def list_peers(
    path: Where,
    everyone: Annotated[
        bool, typer.Option("--all", help="also list peers of whom there is nothing to tell")
    ] = False,
    as_json: Json = False,
) -> None:
    """The belief over every peer, and what is known of it. Also without the word «list»."""
    from abps_node.cli import read_peers
    from abps_node.cli.human import console, to_json
    from abps_node.cli.state_path import state_dir_of
    from abps_node.store.reader import Reader

    table = read_peers.collect(Reader(state_dir_of(path)))
    if as_json:
        typer.echo(to_json(read_peers.document(table)))
    else:
        read_peers.show(table, console(), everyone)


@app.command()
def add(
    path: CenterFile,
    peer: Annotated[str, typer.Option("--id", metavar="ID", help="the new member's id")],
    public_key: Annotated[str, typer.Option(metavar="KEY", help="its public key, z85")],
    address: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="where it listens")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="for a member that changes its key: when the former ends (7d, 12h, 90s, or a "
            "date such as 2027-01-31)",
        ),
    ] = None,
) -> None:
    """Admit a member by its public key, or a second key of one; a running daemon heeds it at once.

    An own decision of this center: the others have to make it, too. The key must have come by a way
    that proves whose it is.
    """
    from abps_node.members_edit import add_member

    config = _config(path)
    found = add_member(config, peer, public_key, address, until)
    typer.echo(_told(found, peer, public_key))


@app.command()
def revoke(
    path: CenterFile,
    public_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="the key that counts no more")
    ] = None,
    peer: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="or a member: all of its keys")
    ] = None,
) -> None:
    """Revoke a key: its sessions end, its connections are closed, nothing of it is merged any more.

    A running daemon heeds it within a second. A member without any key left is a member no more.
    """
    from abps_node.members_edit import revoke_keys

    config = _config(path)
    for change in revoke_keys(config, public_key, peer):
        typer.echo(f"revoked {change.public_key} of {change.id}")


def _told(found: Membership, peer: str, public_key: str) -> str:
    others = [key for key in found.keys[peer] if key != public_key]
    until = f"; {', '.join(others)} goes on until its time is over" if others else ""
    return f"{peer} is a member with the key {public_key}{until}"


def _config(path: Path) -> CenterConfig:
    from abps_node.config import load_center_config

    return load_center_config(path / "center.toml" if path.is_dir() else path)
