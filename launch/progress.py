"""What the launcher shows while centers run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

LIVE_PERIOD_S: Final = 1.0
PLAIN_PERIOD_S: Final = 5.0
SIGN_OF_LIFE_S: Final = 30.0
MANY: Final = 24
"""Beyond this number centers are counted, and only those that need attention shown one by one."""


@dataclass(frozen=True)
class CenterView:
    """One center at one moment, as far as its state directory and its process tell."""

    id: str
    phase: str
    """What it does now, or how it ended."""
    done: bool
    """Whether its last round is committed; it may still answer others and measure."""
    failed: bool
    """Whether it ended otherwise than finished or stopped on request."""
    round: int
    """Last committed round; 0 before the first."""
    rounds: int
    """Rounds that the contract plans."""
    last: str
    """Partners of that round, or why there were none."""
    metric: str
    """Validation metric of that round with its name."""
    rests: int
    """Rounds without a partner so far."""


class Progress(Protocol):
    """Where the launcher tells what happens."""

    period_s: float
    """How often ``update`` wants to be called."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End showing; what was shown last stays."""
        ...

    def update(self, views: Sequence[CenterView]) -> None:
        """Show all centers as they are now."""
        ...

    def say(self, text: str, *, warn: bool = False) -> None:
        """Tell one thing that happened."""
        ...


def progress_on(console: Console, title: str) -> Progress:
    """A live table if the console is a terminal, else plain lines."""
    return _Live(console, title) if console.is_terminal else _Plain(console, title)


class _Shown:
    """What both kinds share."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._begin = time.monotonic()

    @property
    def _passed(self) -> str:
        return f"{time.monotonic() - self._begin:.0f} s"

    def say(self, text: str, *, warn: bool = False) -> None:
        """Print above the table, or as the next line."""
        self._console.print(Text(text, style="yellow" if warn else ""), soft_wrap=True)


class _Live(_Shown):
    """A table that is drawn over itself, by the caller's thread."""

    period_s = LIVE_PERIOD_S

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, title)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, views: Sequence[CenterView]) -> None:
        """Draw the table anew."""
        self._live.update(_table(f"{self._title} · {self._passed}", views), refresh=True)


class _Plain(_Shown):
    """One line about all centers when there is news, for logs."""

    period_s = PLAIN_PERIOD_S

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, title)
        self._line = ""
        self._quiet_since = 0.0

    def __enter__(self) -> Self:
        self.say(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def update(self, views: Sequence[CenterView]) -> None:
        """Print the last committed round of every center, if it is news or a sign of life due."""
        line = "  ".join(map(_brief, views)) if len(views) <= MANY else _tally(views)
        if line != self._line or time.monotonic() - self._quiet_since >= SIGN_OF_LIFE_S:
            self._line, self._quiet_since = line, time.monotonic()
            self.say(f"{self._passed:>6}  {line}")


def _brief(view: CenterView) -> str:
    if view.failed:
        return f"{view.id} {view.phase}"
    return f"{view.id} {view.round} done" if view.done else f"{view.id} {view.round}/{view.rounds}"


def _tally(views: Sequence[CenterView]) -> str:
    """Many centers in one line: where they stand, and who is in trouble."""
    rounds = [view.round for view in views]
    failed = [view for view in views if view.failed]
    text = f"rounds {min(rounds)} to {max(rounds)} of {views[0].rounds}"
    text += f", {sum(view.done for view in views)} of {len(views)} centers done"
    text += f", {sum(view.rests for view in views)} rests"
    if failed:
        shown = ", ".join(map(_brief, failed[:MANY]))
        more = f" and {len(failed) - MANY} more" if len(failed) > MANY else ""
        text += f"; failed: {shown}{more}"
    return text


def _urgent(views: Sequence[CenterView]) -> list[CenterView]:
    """Those to be shown: all, or the failed and then those furthest behind."""
    if len(views) <= MANY:
        return list(views)
    return sorted(views, key=lambda view: (not view.failed, view.done, view.round, view.id))[:MANY]


def _table(title: str, views: Sequence[CenterView]) -> Table:
    if len(views) > MANY:
        title = f"{title}\n{_tally(views)}"
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("center", style="bold")
    table.add_column("now")
    table.add_column("round", justify="right")
    table.add_column("partners in that round", max_width=44, no_wrap=True)
    table.add_column("validation", justify="right")
    table.add_column("rests", justify="right")
    for view in _urgent(views):
        now = Text(view.phase, style="red" if view.failed else "")
        rounds = f"{view.round}/{view.rounds}"
        table.add_row(view.id, now, rounds, Text(view.last), view.metric, str(view.rests))
    return table
