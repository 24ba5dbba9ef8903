"""`abps peers`: the belief over every peer, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abps_node.cli.human import MISSING, ago, clean, count, fits, number, plain, utc
from abps_node.store.reader import Reader
from abps_node.store.views import PeerView
from protocol.beliefs import Belief, ucb
from protocol.contract import Contract
from protocol.goal import card_names

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FEW_PEERS = 30
"""Up to so many are always listed one by one."""
_WORDS = {"status": "status", "outcome": "outcome (round)"}
"""Headings of the columns of text."""
_UNKNOWN = PeerView("", "unmet", 0, None, "", None, None, None)


@dataclass(frozen=True)
class PeerLine:
    """One peer."""

    view: PeerView
    belief: Belief
    ucb: float
    """At ``PeerTable.round``."""
    goal_score: float | None
    """Of the last committed round; None where the goal filter is off or had no card."""

    @property
    def telling(self) -> bool:
        """Whether there is anything to tell beside the prior."""
        return (
            self.belief.n > 0
            or self.view.last_outcome is not None
            or self.view.status in ("suspect", "away", "refused", "unreachable")
        )


@dataclass(frozen=True)
class PeerTable:
    """All peers, those with the most to tell first."""

    center: str
    contract: Contract
    round: int
    """The round for which the bounds hold: the one under way."""
    last_round: int
    goal: str
    threshold: float | None
    lines: tuple[PeerLine, ...]


def collect(reader: Reader) -> PeerTable:
    """Beliefs, bounds, goal scores and views of all peers that the state knows."""
    status, contract, beliefs = reader.status(), reader.contract, reader.beliefs()
    views = {view.peer: view for view in reader.peers()}
    newest = reader.rounds(limit=1)
    record = newest[0].record if newest else None
    scores = record.goal_scores if record else {}
    policy = contract.policy
    prior = Belief(policy.prior_alpha, policy.prior_beta)
    number_now = max(1, status.phase_round, status.last_round)
    lines = []
    for peer in sorted(views.keys() | beliefs.keys() | scores.keys()):
        belief = beliefs.get(peer, prior)
        bound = ucb(belief, number_now, policy.gamma)
        view = views.get(peer) or PeerView(**{**vars(_UNKNOWN), "peer": peer})
        lines.append(PeerLine(view, belief, bound, scores.get(peer)))
    lines.sort(key=lambda line: (not line.belief.n, not line.telling, -line.ucb, line.view.peer))
    return PeerTable(
        center=status.center,
        contract=contract,
        round=number_now,
        last_round=status.last_round,
        goal=record.goal if record else policy.goal,
        threshold=record.threshold if record else None,
        lines=tuple(lines),
    )


def document(table: PeerTable) -> dict[str, Any]:
    """The table as JSON types."""
    policy = table.contract.policy
    return {
        "center": table.center,
        "round": table.round,
        "last_round": table.last_round,
        "gamma": policy.gamma,
        "tau_acc": policy.tau_acc,
        "goal": table.goal,
        "threshold": table.threshold,
        "card_names": list(card_names(table.contract)),
        "peers": [_entry(line) for line in table.lines],
    }


def _entry(line: PeerLine) -> dict[str, Any]:
    view = plain(line.view)
    view["last_seen"] = utc(line.view.last_seen)
    belief = line.belief
    return {
        "peer": view.pop("peer"),
        "alpha": belief.alpha,
        "beta": belief.beta,
        "mean": belief.mean,
        "n": belief.n,
        "ucb": line.ucb,
        "goal_score": line.goal_score,
        **view,
    }


def show(table: PeerTable, console: Console, everyone: bool) -> None:
    """Print the table; many peers that stand at the prior are only counted."""
    if not table.lines:
        console.print(f"{table.center} knows no peer yet.")
        return
    shown = table.lines
    if len(shown) > FEW_PEERS and not everyone:
        shown = tuple(line for line in table.lines if line.telling)
    console.print(_title(table))
    if shown:
        console.print(_fitting(shown, console))
    for line in shown:
        if line.view.status == "refused" and line.view.detail:
            console.print(f"{line.view.peer} is refused: {clean(line.view.detail)}", style="red")
    rest = table.lines[len(shown) :]
    if rest:
        console.print(_summary(rest))


def _title(table: PeerTable) -> str:
    policy = table.contract.policy
    goal = f"goal {table.goal}"
    if table.goal != "none" and table.threshold is not None:
        goal += f", threshold {number(table.threshold, 4)}"
    after = f"after round {table.last_round}" if table.last_round else "before the first round"
    bounds = f"UCB of round {table.round} with γ {policy.gamma:.3g}, τ_acc {policy.tau_acc:g}"
    return f"{table.center} {after}: {count(len(table.lines), 'peer')}; {bounds}; {goal}"


def _fitting(lines: tuple[PeerLine, ...], console: Console) -> Table:
    """All columns where they fit; else without α and β, which follow from mean and n, or less."""
    scored = any(line.goal_score is not None for line in lines)
    unscored = set() if scored else {"goal"}
    for left_out in (set[str](), {"α", "β"}, {"α", "β", "card"}):
        made = _table(lines, left_out | unscored, console.width)
        if fits(made, console):
            break
    return made


def _table(lines: tuple[PeerLine, ...], left_out: set[str], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    rows = [_cells(line) for line in lines]
    names = [name for name in rows[0] if name not in left_out]
    # A name is only folded if it takes more than a third of the line.
    widest = min(max(len(line.view.peer) for line in lines), width // 3)
    for name in names:
        if name == "peer":
            made.add_column(name, overflow="fold", min_width=widest)
        elif name in _WORDS:
            made.add_column(_WORDS[name], overflow="fold", min_width=8)
        else:
            made.add_column(name, justify="right", no_wrap=True)
    for line, cells in zip(lines, rows, strict=True):
        made.add_row(*(Text(cells[name]) for name in names), style=_style(line.view.status))
    return made


def _cells(line: PeerLine) -> dict[str, str]:
    """What stands in each column, in their order."""
    belief, view = line.belief, line.view
    return {
        "peer": view.peer,
        "status": _status(view),
        "n": str(belief.n),
        "mean": number(belief.mean),
        "α": number(belief.alpha, 2),
        "β": number(belief.beta, 2),
        "UCB": number(line.ucb),
        "goal": number(line.goal_score),
        "outcome": _outcome(view),
        "seen": ago(view.last_seen),
        "card": _card(view.card),
    }


def _status(view: PeerView) -> str:
    """The status, and the incarnation if the peer was started more than once."""
    again = f" #{view.incarnation}" if view.incarnation > 1 else ""
    return view.status + again


def _outcome(view: PeerView) -> str:
    if view.last_outcome is None:
        return MISSING
    return f"{clean(view.last_outcome)} ({view.last_outcome_round})"


def _card(card: tuple[float, ...] | None) -> str:
    """The two components that every card begins with: share of events, and patients."""
    if card is None or len(card) < 2:
        return MISSING
    return f"{100 * card[0]:.0f} % of {math.exp(min(card[1], 30.0)):.0f}"


def _style(status: str) -> str:
    return {
        "suspect": "yellow",
        "refused": "red",
        "away": "dim",
        "unmet": "dim",
        "unreachable": "yellow",
    }.get(status, "")


def _summary(lines: tuple[PeerLine, ...]) -> str:
    by_status: dict[str, int] = {}
    for line in lines:
        by_status[line.view.status] = by_status.get(line.view.status, 0) + 1
    tally = ", ".join(f"{n} {status}" for status, n in sorted(by_status.items()))
    at_prior = lines[0]
    return (
        f"… and {count(len(lines), 'peer')} at the prior, mean {number(at_prior.belief.mean)} and "
        f"UCB {number(at_prior.ucb)} ({tally}); --all lists them."
    )
