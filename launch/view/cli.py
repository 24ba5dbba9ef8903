"""`abps launch status, isolation, logs, report, stop`: a federation as a whole."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from abps_node.cli.read import Level

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 160
_NAMED: Final = 12

Directory = Annotated[
    Path,
    typer.Argument(metavar="FEDERATION_DIR", help="as abps data prepare writes it: centers/<id>/…"),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document")]
Everyone = Annotated[bool, typer.Option("--all", help="list every center of a large federation")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (status, isolation, logs, report, stop):
        app.command(command.__name__)(command)


def status(
    directory: Directory,
    everyone: Everyone = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="again and again, until all have finished")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON document; with --watch one JSON line each")
    ] = False,
) -> None:
    """Who is alive, who is alone and why: every center in a line, the most urgent first."""
    from abps_node.cli.human import to_json
    from launch.layout import look_into
    from launch.view import status as view
    from launch.view.watch import watched

    layout = look_into(directory)
    if watch:
        watched(lambda: view.collect(layout, time.time()), _console(), everyone, as_json)
        return
    found = view.collect(layout, time.time())
    if as_json:
        typer.echo(to_json(view.document(found)))
        return
    out = _console()
    out.print(view.render(found, out, everyone))


def isolation(directory: Directory, everyone: Everyone = False, as_json: Json = False) -> None:
    """Who was alone, by cause and by round, who never found a partner, and what explains it."""
    from abps_node.cli.human import to_json
    from launch.layout import look_into
    from launch.view import isolation as view
    from launch.view.show_isolation import show

    found = view.collect(look_into(directory))
    if as_json:
        typer.echo(to_json(view.document(found)))
    else:
        show(found, _console(), everyone)


def logs(
    directory: Directory,
    center: Annotated[
        str, typer.Option("--center", metavar="A,B,…", help="only these centers")
    ] = "",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="10m, 2h, 14:30 or 2026-11-30T14:30")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="only lines in which this is found")
    ] = None,
    level: Annotated[Level, typer.Option(help="least level to show")] = "debug",
    last: Annotated[
        int | None, typer.Option("--last", "-n", min=1, metavar="N", help="only the newest N")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with what comes, until Ctrl-C")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON document; with --follow one JSON line each")
    ] = False,
) -> None:
    """What all daemons logged, merged by time, rotated files included."""
    from abps_node.cli.read_logs import NOTHING, Filter
    from launch.layout import chosen, look_into
    from launch.view import logs as view

    now = time.time()
    layout = look_into(directory)
    centers, hidden = view.with_readable_logs(chosen(layout, center, "").centers)
    wanted = Filter(level, grep)
    after = None if since is None else view.since_time(since, now)
    width = max((len(each.id) for each in centers), default=0)
    for problem in (*(() if center else layout.broken.values()), *hidden.values()):
        typer.echo(problem, err=True)
    if follow:
        with suppress(KeyboardInterrupt):
            view.follow(centers, wanted, now if after is None else after, width, as_json)
        return
    lines, silent = view.wanted_lines(centers, wanted, after)
    if not view.show_all(lines, width, last, as_json):
        typer.echo(NOTHING)
    if silent:
        names = ", ".join(silent[:_NAMED]) + (" …" if len(silent) > _NAMED else "")
        typer.echo(f"{len(silent)} of {len(centers)} have no log yet: {names}", err=True)


def report(
    directory: Directory,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="default: report.html in the directory")
    ] = None,
) -> None:
    """One HTML page with all of it, in pictures and tables; it needs no network to be read."""
    from launch.layout import look_into
    from launch.view.report import write_report

    typer.echo(f"wrote  {write_report(look_into(directory), out)}")


def stop(
    directory: Directory,
    wait: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="for each to end; default: long enough"),
    ] = None,
) -> None:
    """End a federation of this host or of a Slurm job: centers say goodbye and keep their state.

    Ends with 0 once nothing runs any more, else with 1.
    """
    from launch.layout import look_into
    from launch.stop import Stop

    stopped = Stop(look_into(directory), typer.echo, wait).run()
    raise typer.Exit(0 if stopped else 1)


def _console() -> Console:
    from abps_node.cli.human import console

    out = console()
    if not out.is_terminal:
        out.width = WIDTH_WITHOUT_TERMINAL
    return out
