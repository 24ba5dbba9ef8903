"""`abps launch isolation` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from abps_node.cli.human import clean, count
from launch.view.isolation import Bin, FederationIsolation, Why, by_round

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MANY: Final = 30
"""Lines of single centers that are shown unless all are wanted."""


def show(found: FederationIsolation, console: Console, everyone: bool) -> None:
    """Print totals, rounds, who never found a partner, and what explains it."""
    _head(found, console)
    if found.totals:
        console.print(_totals(found))
        console.print()
        bins = by_round(head for each in found.centers for head in each.heads)
        console.print("Rounds without a partner, by round:")
        console.print(_rounds(found, bins))
        console.print()
    _nobody(found, console, everyone)
    _explanations(found.whys(), console, everyone)
    _unread(found, console)


def _head(found: FederationIsolation, console: Console) -> None:
    total, name = sum(found.totals.values()), clean(found.layout.contract.name)
    centers = count(len(found.centers), "center")
    if not found.rounds:
        console.print(f"{name}: no round is committed yet.")
    elif not total:
        console.print(
            f"{name}: {centers}, and a partner in each of {count(found.rounds, 'round')}."
        )
    else:
        share = 100 * total / found.rounds
        console.print(
            f"{name}: in {total} of {count(found.rounds, 'round')} ({share:.0f} %) of {centers} "
            f"there was no partner, in {found.intentional} of them by the center's own filter or "
            "belief (intentional)."
        )


def _totals(found: FederationIsolation) -> Table:
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("rounds", justify="right")
    made.add_column("centers", justify="right")
    made.add_column("cause")
    made.add_column("")
    for cause, n in found.totals.items():
        made.add_row(
            str(n),
            str(found.touched(cause)),
            str(cause),
            "intentional" if cause.intentional else "",
        )
    return made


def _rounds(found: FederationIsolation, bins: Sequence[Bin]) -> Table:
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("rounds")
    for each in bins:
        made.add_column(each.name, justify="right", no_wrap=True)
    for cause in found.totals:
        values = [each.causes.get(cause, 0) for each in bins]
        made.add_row(str(cause), *(str(value) if value else "·" for value in values))
    made.add_row("committed", *(str(each.committed) for each in bins), style="dim")
    return made


def _nobody(found: FederationIsolation, console: Console, everyone: bool) -> None:
    alone = found.met_nobody
    if not alone:
        if found.rounds:
            console.print("Every center that committed a round has found a partner.")
            console.print()
        return
    console.print(f"Never found a partner: {count(len(alone), 'center')}")
    shown = alone if everyone else alone[:MANY]
    for each in shown:
        causes = ", ".join(f"{n} {cause}" for cause, n in each.causes.most_common())
        console.print(f"  {each.center}: {count(len(each.heads), 'round')}, {causes}")
    _more(len(alone) - len(shown), console)
    console.print()


def _explanations(whys: Sequence[Why], console: Console, everyone: bool) -> None:
    if not whys:
        return
    from rich.table import Table
    from rich.text import Text

    shown = whys if everyone else whys[:MANY]
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("center", overflow="fold", style="bold")
    made.add_column("cause", no_wrap=True)
    made.add_column("rounds", justify="right")
    made.add_column("last", justify="right")
    made.add_column("why, in the last of them")
    before = ""
    for why in shown:
        text = Text(clean(why.explanation))
        if why.others:
            text.append(f"\n{clean(why.others)}", style="dim")
        cause = Text(str(why.cause), style="yellow" if why.cause.intentional else "")
        name = why.center if why.center != before else ""
        made.add_row(name, cause, str(why.rounds), str(why.last), text)
        before = why.center
    console.print(made)
    _more(len(whys) - len(shown), console)


def _unread(found: FederationIsolation, console: Console) -> None:
    for center, problem in found.problems.items():
        console.print(f"{center}: {problem}", style="red")
    if found.not_begun:
        names = ", ".join(found.not_begun[:MANY])
        more = len(found.not_begun) - MANY
        console.print(f"Not begun: {names}" + (f" and {more} more" if more > 0 else ""))


def _more(hidden: int, console: Console) -> None:
    if hidden > 0:
        console.print(f"… and {hidden} more; --all lists them.")
