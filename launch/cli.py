"""`abps launch`: many centers at once."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from launch import slurm_cli
from launch.view import cli as view_cli

app = typer.Typer(help="Start and follow all centers of a federation.", no_args_is_help=True)

_WIDTH_WITHOUT_TERMINAL = 120


@app.command()
def local(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="FEDERATION_DIR", help="as abps data prepare writes it: centers/<id>/…"
        ),
    ],
    centers: Annotated[
        str,
        typer.Option(metavar="A,B,…", help="only these; the others run elsewhere"),
    ] = "",
    part: Annotated[
        str,
        typer.Option(
            "--slice",
            metavar="K/N",
            help="only the k-th of n equal parts, from 1: one host of many",
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="the final table as JSON; progress goes to stderr")
    ] = False,
) -> None:
    """Start the centers of a directory on this machine, follow them, and sum up.

    One process imports everything once and forks a daemon per center; its own end, however it
    comes, ends them too. A daemon that crashes is started again, a few times.

    Ends when all centers have ended, with 0 if all of them finished, else with 1. Ctrl-C ends all;
    the same command then goes on where they stopped.
    """
    from launch.template import single_threaded

    single_threaded()  # before anything imports numpy
    from rich.console import Console

    from launch import summary
    from launch.layout import chosen, read_layout
    from launch.local import launch_local

    out = Console(stderr=as_json)
    if not out.is_terminal:
        out.width = _WIDTH_WITHOUT_TERMINAL
    layout = chosen(read_layout(directory), centers, part)
    code = launch_local(layout, console=out)
    rows = summary.summarize(layout)
    if as_json:
        print(json.dumps(summary.as_json(layout, rows), indent=2, ensure_ascii=False))
        raise typer.Exit(code)
    out.print()
    out.print(summary.as_text(rows, out))
    command, center = summary.worth_a_look(layout, rows)
    where = directory / "centers" / "ID" / "state"
    for line in (
        f"The run as a page: {_abps()} launch report {shlex.quote(str(directory))}",
        f"State of each center: {where}",
        f"Look into one: {_abps()} {command} {shlex.quote(center)}",
    ):
        out.print(line, soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(code)


@app.command()
def results(
    directory: Annotated[Path, typer.Argument(metavar="FEDERATION_DIR")],
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Sum up what has run, as ``local`` does at its end.

    Ends with 0 if all centers finished, else with 1.
    """
    from rich.console import Console

    from launch import summary
    from launch.layout import look_into

    layout = look_into(directory)
    rows = summary.summarize(layout)
    for problem in layout.broken.values():
        typer.echo(problem, err=True)
    if as_json:
        print(json.dumps(summary.as_json(layout, rows), indent=2, ensure_ascii=False))
    else:
        out = Console()
        if not out.is_terminal:
            out.width = _WIDTH_WITHOUT_TERMINAL
        out.print(summary.as_text(rows, out))
    raise typer.Exit(0 if all(row.finished for row in rows) and not layout.broken else 1)


view_cli.register(app)
slurm_cli.register(app)


def _abps() -> str:
    """How the reader can call ``abps``: as this process was called."""
    called = Path(sys.argv[0])
    if called.name != "abps":
        return f"{shlex.quote(sys.executable)} -m abps_node"
    found = shutil.which("abps")
    on_path = found is not None and Path(found).resolve() == called.resolve()
    return "abps" if on_path else shlex.quote(str(called))
