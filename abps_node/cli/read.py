"""The commands that look at a center's state: status, rounds, isolation, logs, and peers.

They read the state directory alone, so they work beside a running daemon, after it was killed and
when it has ended, and change nothing. Errors end the command with one message and a code of
``abps_node.exits``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from abps_node.store.reader import Reader

POLL_S: Final = 0.5
"""Pause between two looks of ``--follow``."""

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="a state directory, a center.toml, or a folder that holds one"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="one JSON document; with --follow one JSON line each")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="go on with what comes, until the daemon ends")
]
Last = Annotated[
    int | None, typer.Option("--last", "-n", min=1, metavar="N", help="only the newest N")
]
Level = Literal["debug", "info", "warning", "error"]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    from abps_node.cli.peers import app as peers  # which takes its options from here

    for command in (status, rounds, isolation, logs):
        app.command(command.__name__)(command)
    app.add_typer(peers, name="peers")


def status(path: Where, as_json: Json = False) -> None:
    """Where a center stands: phase, round, partners, best model, isolation, peers, bytes."""
    from abps_node.cli import read_status
    from abps_node.cli.human import console, to_json

    found = _reader(path).status()
    if as_json:
        typer.echo(to_json(read_status.document(found)))
    else:
        read_status.show(found, console())


def rounds(
    path: Where,
    last: Last = None,
    follow: Follow = False,
    as_json: JsonLines = False,
    objectives: Annotated[
        bool,
        typer.Option(
            "--objectives", help="the center's own objectives instead: loss, conflict, μ*"
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="draw the conflict between objectives over rounds (.png, .svg, .pdf)",
        ),
    ] = None,
) -> None:
    """One line a round: partners with their credit, utility, proposals, seconds, bytes.

    ε marks a round whose proposals went out in random order.
    """
    from abps_node.cli import read_rounds

    reader = _reader(path)
    if plot is not None:
        read_rounds.draw(reader, last, plot)
        return
    if not follow:
        read_rounds.show_all(reader, last, as_json, objectives)
        return
    follower = read_rounds.Follower(reader, last, as_json, objectives)
    _until_the_end(reader, follower.step)


def isolation(path: Where, last: Last = None, as_json: Json = False) -> None:
    """Every round without a partner: its cause, and the numbers that explain it."""
    from abps_node.cli import read_isolation
    from abps_node.cli.human import console, to_json

    found = read_isolation.collect(_reader(path), last)
    if as_json:
        typer.echo(to_json(read_isolation.document(found)))
    else:
        read_isolation.show(found, console())


def logs(
    path: Where,
    level: Annotated[Level, typer.Option(help="least level to show")] = "debug",
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="only lines in which this is found")
    ] = None,
    last: Last = None,
    follow: Follow = False,
    as_json: JsonLines = False,
) -> None:
    """What the daemon logged, oldest first, rotated files included."""
    from abps_node.cli import read_logs
    from abps_node.cli.state_path import state_dir_of

    state_dir = state_dir_of(path)
    wanted = read_logs.Filter(level, grep)
    if not follow:
        read_logs.show_all(state_dir, wanted, last, as_json)
        return
    with read_logs.Follower(state_dir, wanted, last, as_json) as follower:
        _until_the_end(_reader_if_any(state_dir), follower.step)


def _reader(path: Path) -> Reader:
    from abps_node.cli.state_path import state_dir_of
    from abps_node.store.reader import Reader

    return Reader(state_dir_of(path))


def _reader_if_any(state_dir: Path) -> Reader | None:
    """The state's reader; None for a daemon that logged but never got as far as a state."""
    from abps_node.store.reader import Reader
    from abps_node.store.schema import STATE_FILE

    return Reader(state_dir) if (state_dir / STATE_FILE).is_file() else None


def _until_the_end(reader: Reader | None, step: Callable[[], None]) -> None:
    """Call ``step`` again and again until the daemon has ended, and once after that."""
    with suppress(KeyboardInterrupt):
        while True:
            going = reader is not None and reader.condition() in ("running", "elsewhere")
            step()
            if not going:
                return
            time.sleep(POLL_S)
