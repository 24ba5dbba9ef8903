"""`abps check`: the preflight table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.exits import ExitCode

if TYPE_CHECKING:
    from abps_node.preflight import Finding

_COLORS = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_WIDTH_WITHOUT_TERMINAL = 120


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
    from abps_node.preflight import Severity, check_center

    findings = check_center(config)
    good = all(finding.severity is not Severity.PROBLEM for finding in findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        typer.echo(json.dumps({"ok": good, "findings": rows}, ensure_ascii=False, indent=2))
    else:
        _print_table(findings)
    raise typer.Exit(ExitCode.OK if good else ExitCode.FAILED)


def _print_table(findings: list[Finding]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "finding", "how to fix", box=SIMPLE_HEAD)
    for finding in findings:
        severity = Text(finding.severity, style=_COLORS[finding.severity])
        table.add_row(severity, *map(Text, (finding.check, finding.finding, finding.fix)))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    console.print(table)
