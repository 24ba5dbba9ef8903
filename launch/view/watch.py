"""`--watch`: the overview drawn over itself on a terminal, one after the other elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import typer

from abps_node.cli.human import to_json
from launch.view.status import Overview, document, render

if TYPE_CHECKING:
    from rich.console import Console

PERIOD_S: Final = 2.0
"""Pause between two looks."""


def watched(look: Callable[[], Overview], console: Console, everyone: bool, as_json: bool) -> None:
    """Show what ``look`` finds, again and again, until all centers have finished, or Ctrl-C."""
    with suppress(KeyboardInterrupt):
        if console.is_terminal and not as_json:
            _drawn_over(look, console, everyone)
            return
        while True:
            found = look()
            if as_json:
                typer.echo(to_json(document(found), indent=None))
            else:
                console.print(render(found, console, everyone))
                console.print()
            if found.finished:
                return
            time.sleep(PERIOD_S)


def _drawn_over(look: Callable[[], Overview], console: Console, everyone: bool) -> None:
    from rich.live import Live

    found = look()
    with Live(console=console, auto_refresh=False, screen=not everyone) as live:
        while True:
            live.update(render(found, console, everyone, console.height), refresh=True)
            if found.finished:
                break
            time.sleep(PERIOD_S)
            found = look()
    if not everyone:  # the screen is gone with what it showed
        console.print(render(found, console, everyone))
