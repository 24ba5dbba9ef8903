"""`abps check`: the preflight table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.exits import ExitCode

if TYPE_CHECKING:
    from abps_node.preflight import Finding

_COLORS = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("check")(check)


def check(
    config: Annotated[Path, typer.Argument(metavar="CENTER.TOML", help="the center's file")],
    as_json: Annotated[bool, typer.Option("--json", help="findings as one JSON object")] = False,
) -> None:
    """Look for all that would stop or surprise a start.

    Checks files, keys, data, port, peers, disk and state, and says how to fix what it finds. Exit
    code 0 if no problem was found (warnings may have been), else 1.
    """
    from abps_node.cli.human import to_json
    from abps_node.preflight import Severity, check_center

    findings = check_center(config)
    good = all(finding.severity is not Severity.PROBLEM for finding in findings)
    if as_json:
        typer.echo(to_json({"ok": good, "findings": findings}))
    else:
        _print_table(findings)
    raise typer.Exit(ExitCode.OK if good else ExitCode.FAILED)


def _print_table(findings: list[Finding]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table
    from rich.text import Text

    from abps_node.cli.human import console

    finding_column, fix_column = Column("finding", overflow="fold"), Column("how to fix")
    table = Table("", "check", finding_column, fix_column, box=SIMPLE_HEAD)
    for finding in findings:
        severity = Text(finding.severity, style=_COLORS[finding.severity])
        table.add_row(severity, *map(Text, (finding.check, finding.finding, finding.fix)))
    console().print(table)
