"""`abps` in this process: the same entry point as the console script, its output and exit code."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def abps(*arguments: str | Path) -> Outcome:
    """Run one command."""
    from abps_node.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    argv = ["abps", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            run()
            code: object = 0
        except SystemExit as end:
            code = end.code
    if not isinstance(code, int):
        raise AssertionError(f"{argv} ended with {code!r}, not with a number")
    return Outcome(int(code), out.getvalue(), err.getvalue())
