"""`abps outbound`: everything that ever left this center, and whether that record is whole."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.errors import BrokenRecord

if TYPE_CHECKING:
    from abps_node.cli.read_outbound import Filter

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="a state directory, a center.toml, or a folder that holds one"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("outbound")(outbound)


def outbound(
    path: Where,
    peer: Annotated[
        str | None, typer.Option(metavar="ID", help="only what went to this center")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="WHAT", help="only this kind: hello, weights, card …")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="only from this time on (local time)")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", "-n", min=1, metavar="N", help="only the newest N")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="one line per receiver and kind")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="check that nothing was changed, and list nothing")
    ] = False,
    noted: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="with --verify: a line's hash noted earlier must still be there"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
) -> None:
    """Everything that ever left this center: when, to whom, what, how many bytes.

    Cards with their values, trunks by their SHA-256. A frame that no connection took is marked
    «not sent».
    """
    from abps_node.cli.read_outbound import Filter
    from abps_node.cli.state_path import state_dir_of

    state_dir = state_dir_of(path)
    if verify:
        _verify(state_dir, noted, as_json)
    elif noted is not None:
        raise typer.BadParameter("is for --verify", param_hint="--noted")
    else:
        _list(state_dir, Filter(peer, kind, since, last), summary, as_json)


def _verify(state_dir: Path, noted: str | None, as_json: bool) -> None:
    from abps_node.audit.verify import knows, verify
    from abps_node.cli.human import to_json
    from abps_node.cli.read_outbound import told

    verdict = verify(state_dir)
    lost = noted is not None and verdict.broken is None and not knows(state_dir, noted)
    if as_json:
        typer.echo(
            to_json({**vars(verdict), "noted_is_there": None if noted is None else not lost})
        )
    else:
        for line in told(verdict):
            typer.echo(line)
    if verdict.broken is not None:
        raise BrokenRecord(str(verdict.broken))
    if lost:
        raise BrokenRecord(
            f"{state_dir}: found no line with the hash {noted}, expected one: the record was "
            "written anew"
        )


def _list(state_dir: Path, wanted: Filter, summary: bool, as_json: bool) -> None:
    from abps_node.cli import read_outbound
    from abps_node.cli.human import console, to_json

    lines = read_outbound.lines(state_dir, wanted)
    if summary:
        totals = read_outbound.totals(lines)
        if as_json:
            typer.echo(to_json({"outbound": totals}))
        else:
            read_outbound.show_totals(totals, console())
        return
    if as_json:
        typer.echo(to_json({"outbound": list(lines)}))
        return
    empty = True
    for line in lines:
        typer.echo(read_outbound.render(line))
        empty = False
    if empty:
        typer.echo(read_outbound.NOTHING)
