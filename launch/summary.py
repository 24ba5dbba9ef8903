"""What a federation run came to, per center: read from the centers' own state directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from abps_node.cli.human import count, fits
from abps_node.config import CenterConfig
from abps_node.errors import DataError, StoreError
from abps_node.store.reader import NoState, Reader
from launch.layout import FederationLayout
from launch.objectives import LEGEND, ObjectiveRow, answers_label, as_table, rows_of, without_label
from protocol.record import RestCause

Verdict = Literal["overlap", "federated", "alone"]


@dataclass(frozen=True)
class Auroc:
    """AUROC on the test split with its 95 % bootstrap interval; None where a class is missing."""

    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, report: dict[str, Any] | None) -> Auroc | None:
        """The figures of a saved report; None without a report, or for another outcome."""
        if not report or not answers_label(report):
            return None
        return cls(report["auroc"], report["auroc_low"], report["auroc_high"])


@dataclass(frozen=True)
class CenterSummary:
    """One center's row. What it did not reach is None or 0."""

    id: str
    finished: bool
    patients: int | None
    test_rows: int | None
    test_events: int | None
    alone: Auroc | None
    federated: Auroc | None
    rounds: int
    partners: tuple[str, ...]
    """Distinct peers whose trunk entered a merge."""
    isolated: dict[str, int]
    """Rest cause to rounds."""
    sent_bytes: int
    """On the wire, overhead of transport and encryption included."""
    received_bytes: int
    problem: str | None = None
    """Why its state cannot be read."""
    answers_label: bool = True
    """Whether it learns the contract's label, of which AUROC and events are told."""
    objectives: tuple[ObjectiveRow, ...] = ()
    """What became of its own objectives; none where it has none."""

    @property
    def verdict(self) -> Verdict | None:
        """See ``verdict_of``."""
        return verdict_of(self.alone, self.federated)


def verdict_of(alone: Auroc | None, federated: Auroc | None) -> Verdict | None:
    """Which of the two intervals lies above the other, if they are apart at all."""
    if alone is None or federated is None:
        return None
    if alone.low is None or alone.high is None:
        return None
    if federated.low is None or federated.high is None:
        return None
    if federated.low > alone.high:
        return "federated"
    return "alone" if alone.low > federated.high else "overlap"


def summarize(layout: FederationLayout) -> list[CenterSummary]:
    """One row per center of the directory, also for those that never ran or died."""
    return [_summarize(center) for center in layout.centers]


def _summarize(center: CenterConfig) -> CenterSummary:
    patients = _patients(center)
    try:
        reader = Reader(center.state_dir)
        status, rounds = reader.status(), reader.rounds()
        reports = {name: reader.report(name) or {} for name in ("federated", "alone", "stage2")}
    except StoreError as error:
        # Never started, or ended before its first write: an empty row, the launcher said why.
        problem = None if isinstance(error, NoState) else str(error)
        empty = CenterSummary(center.id, False, patients, None, None, None, None, 0, (), {}, 0, 0)
        return replace(empty, problem=problem)
    partners = {partner.peer for entry in rounds for partner in entry.record.partners}
    answers = all(answers_label(report) for report in reports.values())
    federated = reports["federated"] if answers else {}
    return CenterSummary(
        id=center.id,
        finished=status.finished,
        patients=patients,
        test_rows=federated.get("rows"),
        test_events=federated.get("events"),
        alone=Auroc.of(reports["alone"]),
        federated=Auroc.of(reports["federated"]),
        rounds=status.last_round,
        partners=tuple(sorted(partners)),
        isolated=status.isolated,
        sent_bytes=status.sent.wire_bytes,
        received_bytes=status.received.wire_bytes,
        answers_label=answers,
        objectives=rows_of(reports),
    )


def _patients(center: CenterConfig) -> int | None:
    """Rows of the patient table; None if it cannot be read any more."""
    from abps_node.data.table import read_table

    try:
        return read_table(center.data, [center.federation.contract.data.label]).rows
    except DataError:
        return None


def as_json(layout: FederationLayout, rows: Sequence[CenterSummary]) -> dict[str, Any]:
    """The whole summary as plain values."""
    return {
        "directory": str(layout.directory),
        "federation": layout.contract.name,
        "preset": layout.contract.policy.preset,
        "goal": layout.contract.policy.goal,
        "centers": [{**asdict(row), "verdict": row.verdict} for row in rows],
    }


def as_text(rows: Sequence[CenterSummary], console: Console) -> RenderableType:
    """The table, and below it what may and may not be read from it.

    On a narrow console related figures share a column and the causes of isolation follow below.
    """
    lines = [*_objectives(rows), Text(), *(Text(line) for line in remarks(rows))]
    wide = _wide(rows)
    if fits(wide, console):
        return Group(wide, *lines)
    return Group(_narrow(rows, console.width), *_cause_lines(rows), *lines)


def _objectives(rows: Sequence[CenterSummary]) -> list[RenderableType]:
    """What became of the objectives of centers that have their own."""
    found = {row.id: row.objectives for row in rows if row.objectives}
    return [Text(), as_table(found), Text(LEGEND)] if found else []


def _wide(rows: Sequence[CenterSummary]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    table.add_column("center", style="bold", no_wrap=True)
    table.add_column("patients", justify="right", no_wrap=True)
    table.add_column("test\nevents", justify="right", no_wrap=True)
    table.add_column("test AUROC\nalone", no_wrap=True)
    table.add_column("test AUROC\nfederated", no_wrap=True)
    table.add_column("rounds", justify="right", no_wrap=True)
    table.add_column("distinct\npartners", justify="right", no_wrap=True)
    table.add_column("isolated\nrounds", no_wrap=True)
    table.add_column("sent\nreceived", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.id,
            _count(row.patients),
            _events(row),
            _interval(row.alone),
            _interval(row.federated),
            str(row.rounds),
            str(len(row.partners)),
            _causes(row.isolated, "\n"),
            _bytes(row),
        )
    return table


def _narrow(rows: Sequence[CenterSummary], width: int) -> Table:
    """At most 54 columns beside the id, which is folded if it must, never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True)
    table.add_column("center", style="bold", overflow="fold", max_width=max(8, width - 59))
    table.add_column("patients\ntest events", justify="right", no_wrap=True)
    table.add_column("AUROC\nalone", no_wrap=True)
    table.add_column("AUROC\nfederated", no_wrap=True)
    table.add_column("rounds\nisolated", justify="right", no_wrap=True)
    table.add_column("distinct\npartners", justify="right", no_wrap=True)
    table.add_column("sent\nreceived", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.id,
            f"{_count(row.patients)}\n{_events(row)}",
            _interval(row.alone),
            _interval(row.federated),
            f"{row.rounds}\n{sum(row.isolated.values())}",
            str(len(row.partners)),
            _bytes(row),
        )
    return table


def _cause_lines(rows: Sequence[CenterSummary]) -> list[Text]:
    """Why centers were isolated, a line each."""
    lines = [
        Text.assemble("  ", (row.id, "bold"), f": {_causes(row.isolated, ', ')}", overflow="fold")
        for row in rows
        if row.isolated
    ]
    return [Text(), Text("Isolated rounds"), *lines] if lines else []


def remarks(rows: Sequence[CenterSummary]) -> list[str]:
    """What the table says and what it does not, in sentences."""
    lines = [
        "AUROC with its 95 % bootstrap interval. Alone: the same training and selection without "
        "partners. Bytes are those on the wire."
    ]
    others = [row.id for row in rows if not row.answers_label]
    if others:
        lines.append(without_label(", ".join(others)))
    verdicts = Counter(row.verdict for row in rows)
    compared = verdicts.total() - verdicts[None]
    if compared:
        lines.append(
            f"In {verdicts['overlap']} of {compared} centers the two intervals overlap: "
            "there this run names no winner."
        )
    for verdict, words in (("federated", "Federated is higher"), ("alone", "Alone is higher")):
        names = [row.id for row in rows if row.verdict == verdict]
        if names:
            lines.append(f"{words}, with the intervals apart: {', '.join(names)}.")
    isolated = sum((Counter(row.isolated) for row in rows), Counter[str]())
    if isolated:
        total = isolated.total()
        lines.append(
            f"{count(total, 'round')} {'was' if total == 1 else 'were'} spent without a partner, "
            f"{_intentional(isolated)} of them intentionally, by the center's own filter or belief."
        )
    unfinished = [row.id for row in rows if not row.finished]
    if unfinished:
        lines.append(f"Not finished: {', '.join(unfinished)}.")
    lines += [f"{row.id}: {row.problem}" for row in rows if row.problem is not None]
    return lines


def worth_a_look(layout: FederationLayout, rows: Sequence[CenterSummary]) -> tuple[str, str]:
    """A reading command of ``abps`` and the center directory to give it.

    The center with most isolated rounds, if any was isolated, for those explain themselves;
    rather one that chose so than one that found nobody.
    """
    row = max(rows, key=lambda row: (_intentional(row.isolated), sum(row.isolated.values())))
    command = "isolation" if row.isolated else "peers"
    return command, str(layout.directory / "centers" / row.id)


def _intentional(isolated: Mapping[str, int]) -> int:
    return sum(isolated.get(cause, 0) for cause in RestCause if cause.intentional)


def megabytes(count: int) -> str:
    """Bytes for people, decimal."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _interval(auroc: Auroc | None) -> str:
    if auroc is None:
        return "–"
    if auroc.value is None:
        return "one class\nonly"
    interval = "" if auroc.low is None else f"\n{auroc.low:.2f}–{auroc.high:.2f}"
    return f"{auroc.value:.3f}{interval}"


def _events(row: CenterSummary) -> str:
    return "–" if row.test_rows is None else f"{row.test_events} of {row.test_rows}"


def _bytes(row: CenterSummary) -> str:
    return f"{megabytes(row.sent_bytes)}\n{megabytes(row.received_bytes)}"


def _causes(isolated: Mapping[str, int], between: str) -> str:
    return between.join(f"{rounds} {cause}" for cause, rounds in isolated.items()) or "none"
