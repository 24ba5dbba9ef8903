"""How far a command is: bars on the terminal, and what stands for them elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from sim.datasets.base import Progress


@contextmanager
def bars_shown() -> Iterator[Bars | None]:
    """Bars on the terminal; nothing where there is none."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Bars(console=console, transient=True) as bars:
        yield bars


def reading(bars: Bars | None) -> Progress | None:
    """Told of what is read, and of the share that is done."""
    if bars is None:
        return None
    task = bars.add_task("reading", total=None)

    def told(what: str, share: float | None) -> None:
        bars.update(task, description=what, total=None if share is None else 1.0)
        bars.update(task, completed=share or 0.0)

    return told


def rounds_of(bars: Bars | None) -> Callable[[int, int], None] | None:
    """Told of rounds that are done, and of how many there may be."""
    if bars is None:
        return None
    task = bars.add_task("rounds", total=None)
    return lambda done, most: bars.update(task, completed=done, total=most)


def cells_of(bars: Bars | None) -> Callable[[dict[str, Any], int, int], None]:
    """A bar on the terminal, a line per cell elsewhere."""
    task = None if bars is None else bars.add_task("cells", total=None)

    def told(result: dict[str, Any], done: int, most: int) -> None:
        words = f"{result['name']}, seed {result['seed']}"
        if bars is None or task is None:
            typer.echo(f"{done}/{most} {words}: {result['seconds']:.1f} s", err=True)
        else:
            bars.update(task, description=words, completed=done, total=most)

    return told
