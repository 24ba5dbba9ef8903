"""`abps status`: one center at a glance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from abps_node.cli.human import (
    MISSING,
    ago,
    clean,
    clock,
    count,
    metric_name,
    number,
    plain,
    size,
    utc,
)
from abps_node.store.views import Status, TrafficTotal
from protocol.record import RestCause

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"running": "green", "finished": "green", "dead": "bold red", "stopped": "yellow"}
_TIMES = ("started", "ended", "phase_since", "last_round_at")
_PEER_ORDER = ("met", "suspect", "finished", "away", "refused", "unreachable", "unmet", "left")


def document(status: Status) -> dict[str, Any]:
    """The status as JSON types; times in UTC."""
    values: dict[str, Any] = plain(status)
    for name in _TIMES:
        values[name] = utc(getattr(status, name))
    if status.last_event is not None:
        values["last_event"]["at"] = utc(status.last_event.at)
    return values


def show(status: Status, console: Console) -> None:
    """Print the status as a list of names and values."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    style = _STYLES.get(status.condition, "")
    table.add_row("center", Text(f"{status.center}, {_federation(status)}"))
    table.add_row("state", Text(_state(status), style=style))
    for name, value in _lines(status):
        table.add_row(name, Text(value))
    console.print(table)


def _lines(status: Status) -> list[tuple[str, str]]:
    return [
        ("process", _process(status)),
        ("last round", _last_round(status)),
        ("partners now", ", ".join(status.partners_now) or "none"),
        ("validation", _validation(status)),
        *_tests(status),
        ("isolated", _isolated(status)),
        ("peers", _peers(status)),
        ("sent", _traffic(status.sent)),
        ("received", _traffic(status.received)),
        ("last event", _last_event(status)),
    ]


def _federation(status: Status) -> str:
    return f"federation {status.contract_name}, contract {status.contract_digest[:12]}"


def _state(status: Status) -> str:
    where = f"phase {status.phase} of round {status.phase_round} of {status.rounds_planned}"
    match status.condition:
        case "running":
            return f"running: {where}, for {ago(status.phase_since)}"
        case "dead":
            return (
                f"died in {where}, which began {clock(status.phase_since)} "
                f"({ago(status.phase_since)} ago); process {status.pid} is gone"
            )
        case "finished":
            return f"finished after round {status.last_round} of {status.rounds_planned}"
        case "stopped" | "left":
            word = "stopped" if status.condition == "stopped" else "left for good"
            ended = f"{clock(status.ended)} ({ago(status.ended)} ago)"
            return f"{word} on {ended} after round {status.last_round} of {status.rounds_planned}"
        case "elsewhere":
            return (
                f"last heard of on {status.host} in {where}, "
                f"{ago(status.phase_since)} ago; whether it runs can only be seen there"
            )
        case "new":
            return "never started"


def _process(status: Status) -> str:
    if status.pid is None:
        return MISSING
    return (
        f"{status.pid} on {status.host}, incarnation {status.incarnation}, "
        f"{status.endpoint or 'not listening yet'}, started {clock(status.started)}"
    )


def _last_round(status: Status) -> str:
    if status.last_round == 0:
        return "none committed yet"
    partners = ", ".join(status.partners_last)
    company = f"with {partners}" if partners else "without a partner"
    when = f"{ago(status.last_round_at)} ago"
    return f"{status.last_round} of {status.rounds_planned}, {when}, {company}"


def _validation(status: Status) -> str:
    found = status.validation
    if found is None:
        return MISSING
    rows = count(found.rows, "row")
    if found.metric != "mae-gain":
        rows = f"{count(found.events, 'event')} in {rows}"
    gain = f"{count(status.rounds_without_gain, 'round')} without gain since"
    best = f"best {number(status.best_metric, 4)} in round {status.best_round}"
    return f"{metric_name(found.metric)} {number(found.value, 4)} ({rows}); {best}, {gain}"


def _tests(status: Status) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    reports = dict(status.reports)
    if tuned := reports.get("alone", {}).get("stage2"):
        reports["alone stage2"] = tuned
    for name, report in reports.items():
        if "objectives" not in report:
            found.append((f"test {name}", _test(report)))
            continue
        for objective, values in report["objectives"].items():
            text = _duration(values) if "mae" in values else _test(values)
            found.append((f"test {name}, {objective}", text))
        if "kept" in report:
            found.append((f"{name} kept", _tuning(report)))
    return found


def _duration(values: dict[str, Any]) -> str:
    low, high = number(values["mae_low"], 2), number(values["mae_high"], 2)
    rows, median = count(values["rows"], "row"), number(values["mae_of_median"], 2)
    return (
        f"mean error {number(values['mae'], 2)} days, 95 % {low} to {high} ({rows}); "
        f"{median} for always saying the training median"
    )


def _tuning(report: dict[str, Any]) -> str:
    reached = " → ".join(number(report[f"validation_{when}"], 4) for when in ("before", "after"))
    end = "stationarity" if report["stationary"] else "its budget"
    end = "divergence" if report["diverged"] else end
    return (
        f"the model {report['kept']} fine-tuning; validation {reached} in "
        f"{count(report['epochs'], 'epoch')}, ended by {end}"
    )


def _test(report: dict[str, Any]) -> str:
    rows = f"{count(report['events'], 'event')} in {count(report['rows'], 'row')}"
    if report["auroc"] is None:
        return f"auroc undefined ({rows}); brier {number(report['brier'], 4)}"
    low, high = number(report["auroc_low"], 2), number(report["auroc_high"], 2)
    return (
        f"auroc {number(report['auroc'], 4)}, 95 % {low} to {high} ({rows}); "
        f"auprc {number(report['auprc'], 3)}, brier {number(report['brier'], 3)}, "
        f"calibration slope {number(report['calibration_slope'], 2)}"
    )


def _isolated(status: Status) -> str:
    total = sum(status.isolated.values())
    if total == 0:
        return f"none of {count(status.last_round, 'round')}"
    causes = ", ".join(
        f"{n} {cause}{' (intentional)' if RestCause(cause).intentional else ''}"
        for cause, n in status.isolated.items()
    )
    return f"{total} of {count(status.last_round, 'round')}: {causes}"


def _peers(status: Status) -> str:
    known = sorted(status.peers, key=lambda name: (*_PEER_ORDER, name).index(name))
    return ", ".join(f"{status.peers[name]} {name}" for name in known) or "none known yet"


def _traffic(total: TrafficTotal) -> str:
    return (
        f"{size(total.frame_bytes)} in {count(total.messages, 'message')}, "
        f"{size(total.wire_bytes)} on the wire"
    )


def _last_event(status: Status) -> str:
    event = status.last_event
    if event is None:
        return MISSING
    # Most texts name their peer themselves.
    who = f" {event.peer}:" if event.peer and not _names(event.text, event.peer) else ""
    return f"{clock(event.at)}, {event.level},{who} {clean(event.text)}"


def _names(text: str, peer: str) -> bool:
    """Whether the peer occurs in the text as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(peer)}(?![\w-])", text) is not None
