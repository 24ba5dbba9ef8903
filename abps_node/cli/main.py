"""`abps`: the commands, and how every error becomes one message and a documented exit code.

Only light modules are imported here; torch, tables, sockets and the configuration models are
imported inside the command that needs them, so that ``abps --help`` answers at once.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from abps_node import __version__
from abps_node.cli import campaign, check, init, leave, outbound, read, repair, replay
from abps_node.cli import export as export_command
from abps_node.cli import predict as predict_command
from abps_node.cli import run as run_command
from abps_node.cli.keys import app as keys
from abps_node.cli.schema import app as schema
from abps_node.errors import NodeError
from abps_node.exits import ExitCode, exit_code_for


def build() -> typer.Typer:
    """The application with all its commands."""
    # Imported here, since all of them build on the node; their own imports are lazy too.
    from launch.cli import app as launch
    from sim.cli import app as simulate
    from sim.data_cli import app as data

    app = typer.Typer(
        name="abps",
        callback=_root,
        no_args_is_help=True,
        add_completion=False,
        # Rich's help alone would cost 0.15 s, its tracebacks would show values of patients.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for module in (init, check, run_command, campaign, leave, read, outbound, replay, repair):
        module.register(app)
    predict_command.register(app)
    export_command.register(app)
    app.add_typer(keys, name="keys")
    app.add_typer(schema, name="schema")
    app.add_typer(launch, name="launch")
    app.add_typer(data, name="data")
    app.add_typer(simulate, name="sim")
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"abps {__version__}")
        raise typer.Exit(ExitCode.OK)


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """A clinical center in a peer-to-peer federation that chooses its own partners."""


app = build()


def run() -> None:
    """Entry point of the console script; ends the process with a code of ``ExitCode``."""
    try:
        app(prog_name="abps")
    except NodeError as error:
        print(f"abps: {error}", file=sys.stderr)
        sys.exit(exit_code_for(error))
    except Exception:  # noqa: BLE001 - the root of the process: Python's own code 1 means «failed»
        traceback.print_exc()
        sys.exit(ExitCode.INTERNAL)
