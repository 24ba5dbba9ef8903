"""`abps launch report`: what a federation has come to, as one page that explains its numbers."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from abps_node.cli.human import MISSING, clock, count, metric_name, number, size
from abps_node.errors import NodeError
from launch.layout import FederationLayout
from launch.objectives import HEADS, LEGEND, cells, without_label
from launch.summary import Auroc
from launch.view import page, pictures
from launch.view.attention import state_word, tally
from launch.view.gathering import Compared, Gathered, gather
from launch.view.isolation import Why
from launch.view.page import Section, folded, items, paragraph, picture, table
from launch.view.status import grouped
from launch.view.svg import drawing, inline
from protocol.record import ValidationRecord

REPORT_NAME: Final = "report.html"
_NAMED: Final = 12
_UNFOLDED: Final = 40
"""Rows of a table from which on it is opened by a click."""


def write_report(layout: FederationLayout, out: Path | None = None) -> Path:
    """Write the page, whole or not at all; ``NodeError`` where that is not possible."""
    path = layout.directory / REPORT_NAME if out is None else out
    content = render(gather(layout))
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        made.write_text(content, encoding="utf-8")
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise NodeError(f"{path}: the report cannot be written: {error.strerror}") from error
    return path


def render(found: Gathered) -> str:
    """The page as HTML."""
    with drawing():
        sections = [
            Section("attention", "Who needs attention", _attention(found)),
            Section("auroc", "AUROC: alone and federated", _auroc(found)),
            *_objectives(found),
            Section("rounds", "Validation over the rounds", _validation(found)),
            Section("partners", "Who worked with whom", _partners(found)),
            Section("isolation", "Rounds without a partner", _isolation(found)),
            Section("beliefs", "What centers believe of each other", _beliefs(found)),
            Section("bytes", "Bytes", _bytes(found)),
            Section("centers", "All centers", _centers(found)),
        ]
    return page.page(f"Federation {found.layout.contract.name}", _lead(found), sections)


def _lead(found: Gathered) -> str:
    contract, rows = found.layout.contract, found.overview.rows
    policy = contract.policy
    states = ", ".join(f"{n} {word}" for word, n in tally(rows).items())
    lines = [
        paragraph(
            f"{count(len(rows), 'center')}: {states}. As of {clock(found.overview.at)}; preset "
            f"{policy.preset}, goal {policy.goal}, κ {policy.kappa}, at most {policy.rounds} "
            f"rounds, contract {contract.digest()[:12]}."
        )
    ]
    if not found.overview.finished:
        lines.append(
            paragraph("Not all centers have finished: these numbers are not the last.", "alarm")
        )
    return "\n".join(lines)


# Sections ----------------------------------------------------------------------------------------


def _attention(found: Gathered) -> str:
    if not found.overview.urgent:
        return paragraph("Nobody.", "good")
    lines = []
    for reason, rows in grouped(found.overview.urgent):
        lines.append(f"{_names([row.look.id for row in rows])}: {reason}")
    return items(lines)


def _auroc(found: Gathered) -> str:
    compared = found.compared()
    figure = pictures.auroc(compared)
    parts = [
        paragraph(
            "Measured once, after the last round, on each center's test split, of which neither "
            "training nor selection of the model saw anything. Alone is the same training and "
            "selection without partners. The intervals are 95 % bootstrap intervals over the "
            "test patients; they do not tell how much another run would differ."
        ),
        *_verdicts(compared),
    ]
    if figure is None:
        return "\n".join([*parts, paragraph("No center has a test report with an AUROC yet.")])
    svg = inline(
        figure, "auroc", "Test AUROC of each center, alone and federated", _auroc_words(compared)
    )
    parts.append(picture(svg, "Largest gain first. The line at 0.5 is a model that knows nothing."))
    return "\n".join(parts)


def _objectives(found: Gathered) -> list[Section]:
    """A section where centers have objectives of their own."""
    own = {each.center: each.objectives for each in found.compared() if each.objectives}
    rows = [cells(center, row, "{} ({})") for center, rows in own.items() for row in rows]
    body = paragraph(LEGEND) + table(HEADS, rows)
    return [Section("objectives", "Objectives of centers", body)] if rows else []


def _verdicts(compared: Sequence[Compared]) -> list[str]:
    verdicts = Counter(each.verdict for each in compared)
    known = verdicts.total() - verdicts[None]
    lines = []
    if known:
        lines.append(
            f"In {verdicts['overlap']} of {count(known, 'center')} the two intervals overlap: "
            "there this run names no winner."
        )
    for verdict, words in (("federated", "Federated is higher"), ("alone", "Alone is higher")):
        names = [each.center for each in compared if each.verdict == verdict]
        if names:
            lines.append(f"{words}, with the intervals apart: {_names(names)}.")
    others = [each.center for each in compared if not each.answers_label]
    if others:
        lines.append(without_label(_names(others)))
    compared = [each for each in compared if each.answers_label]
    missing = [each.center for each in compared if each.federated is None]
    if missing:
        lines.append(f"No federated test report: {_names(missing)}.")
    alone = [c.center for c in compared if c.federated is not None and c.alone is None]
    if alone:
        lines.append(f"Not compared with training alone: {_names(alone)}.")
    one_class = [each.center for each in compared if _one_class(each)]
    if one_class:
        lines.append(
            f"Only one class in the test split, so that AUROC is undefined: {_names(one_class)}."
        )
    return [paragraph(line) for line in lines]


def _auroc_words(compared: Sequence[Compared]) -> str:
    gains = [each.difference for each in compared if each.difference is not None]
    if not gains:
        return "Points with horizontal intervals, one line per center."
    up = sum(gain > 0 for gain in gains)
    return (
        f"Points with horizontal intervals, one line per center. The federated point is higher in "
        f"{up} of {count(len(gains), 'center')}; differences run from {min(gains):+.3f} to "
        f"{max(gains):+.3f}."
    )


def _validation(found: Gathered) -> str:
    parts = [
        paragraph(
            "Measured on each center's validation split after each committed round, of the model "
            "after merge and momentum. Partners' credit is measured on this split and the best "
            "round is selected by it, so it flatters; the test split is for comparisons."
        )
    ]
    metrics = Counter(found.metrics.values())
    if not metrics:
        return "\n".join([*parts, paragraph("No round is committed yet.")])
    for place, metric in enumerate(metrics):
        names = [name for name, measured in found.metrics.items() if measured == metric]
        values = {name: found.validations.get(name, {}) for name in names}
        measure = "AUROC" if metric == "auroc" else metric_name(metric)
        figure = pictures.validation(values, measure)
        if figure is not None:
            title = f"Validation {measure} over the rounds"
            words = f"A thin line for each of {count(len(names), 'center')}, a thick median."
            caption = f"{measure} of {count(len(names), 'center')}."
            parts.append(picture(inline(figure, f"rounds{place}", title, words), caption))
    if len(metrics) > 1:
        parts.append(
            paragraph(
                "Centers with objectives of their own are measured by these, centers with one "
                "class among their validation patients otherwise, as the contract says."
            )
        )
    return "\n".join(parts)


def _partners(found: Gathered) -> str:
    pairs = found.pairs()
    figure = pictures.partners(found.names, pairs)
    if figure is None:
        return paragraph("No trunk has been merged yet.")
    alone = sorted(set(found.names) - {name for pair in pairs for name in pair})
    most = max(pairs.items(), key=lambda item: item[1])
    words = f"{count(len(pairs), 'pair')} of centers have worked together."
    lines = [
        paragraph(
            f"{words} The most often: {most[0][0]} and {most[0][1]}, with "
            f"{count(most[1], 'trunk')} merged by either of them."
        )
    ]
    if alone:
        lines.append(paragraph(f"With nobody: {_names(alone)}."))
    svg = inline(figure, "partners", "Partners graph", words)
    caption = "A line for each pair of which either merged the other's trunk, thicker for more."
    return "\n".join([*lines, picture(svg, caption)])


def _isolation(found: Gathered) -> str:
    alone = found.isolation
    if not alone.rounds:
        return paragraph("No round is committed yet.")
    total = sum(alone.totals.values())
    parts = [
        paragraph(
            f"{total} of {count(alone.rounds, 'committed round')} of all centers had no partner; "
            f"{alone.intentional} of them intentionally, by the center's own filter or belief."
        )
    ]
    figure = pictures.isolation([head for each in alone.centers for head in each.heads])
    if figure is not None and total:
        svg = inline(figure, "isolation", "Centers without a partner, by round and cause", "")
        caption = "The line: how many centers have committed that round; blue causes are chosen."
        parts.append(picture(svg, caption))
        rows = [
            [str(cause), str(n), str(alone.touched(cause)), "yes" if cause.intentional else "no"]
            for cause, n in alone.totals.items()
        ]
        heads = ["cause", "rounds", "centers", "intentional"]
        parts.append(table(heads, rows, right=("rounds", "centers")))
    never = [each.center for each in alone.met_nobody]
    parts.append(
        paragraph(f"Never found a partner: {_names(never)}.", "alarm")
        if never
        else paragraph("Every center that committed a round has found a partner.")
    )
    if total:
        parts.append(_whys(alone.whys()))
    return "\n".join(parts)


def _whys(whys: Sequence[Why]) -> str:
    rows = [
        [
            why.center,
            str(why.cause),
            str(why.rounds),
            str(why.last),
            why.explanation + (f"; {why.others}" if why.others else ""),
        ]
        for why in whys
    ]
    heads = ["center", "cause", "rounds", "last", "why, in the last of them"]
    made = table(heads, rows, right=("rounds", "last"))
    return made if len(rows) <= _UNFOLDED else folded(f"{len(rows)} causes, by center", made)


def _beliefs(found: Gathered) -> str:
    figure = pictures.beliefs(found.beliefs)
    if figure is None:
        return paragraph("No credit has been earned yet: all beliefs stand at the prior.")
    held = sum(len(peers) for peers in found.beliefs.values())
    svg = inline(
        figure,
        "beliefs",
        "Belief matrix",
        f"Posterior means of {count(held, 'belief')}; rows believe, columns are believed in.",
    )
    lead = paragraph(
        "The mean of the Beta posterior that a row's center holds about a column's: above 0.5 "
        "(blue) it has helped more than it has harmed, below (red) the reverse. Empty: no credit, "
        "the prior stands. A belief about a center is this row's own finding on its own patients, "
        "not that center's quality."
    )
    return "\n".join(
        [
            lead,
            picture(
                svg,
                "In order of the ids, without centers that neither believe nor are believed in.",
            ),
        ]
    )


def _bytes(found: Gathered) -> str:
    figure = pictures.traffic(found)
    if figure is None:
        return paragraph("Nothing has been sent yet.")
    total = sum(found.kinds.values())
    rows = [
        [kind, size(n), f"{100 * n / total:.1f} %" if total else MISSING]
        for kind, n in found.kinds.items()
    ]
    svg = inline(
        figure,
        "bytes",
        "Bytes on the wire of each center",
        f"All centers together have sent {size(total)}.",
    )
    lead = paragraph(
        f"All centers together have sent {size(total)}, counted by the senders with the overhead "
        "of transport and encryption. By kind of message:"
    )
    heads = ["message", "sent", "share"]
    return "\n".join(
        [lead, table(heads, rows, right=("sent", "share")), picture(svg, "Most bytes first.")]
    )


def _centers(found: Gathered) -> str:
    compared = {each.center: each for each in found.compared()}
    merges, rows = found.merges, []
    for row in sorted(found.overview.rows, key=lambda row: row.look.id):
        status, name = row.look.status, row.look.id
        values = [name, state_word(row)]
        if status is None:
            rows.append([*values, *[MISSING] * 8])
            continue
        isolated = ", ".join(f"{n} {cause}" for cause, n in status.isolated.items())
        values += [
            str(status.last_round),
            str(len(merges.get(name, {}))),
            isolated or "0",
            _metric(status.validation),
            interval(compared[name].alone),
            interval(compared[name].federated),
            size(status.sent.wire_bytes),
            size(status.received.wire_bytes),
        ]
        rows.append(values)
    heads = ["center", "state", "rounds", "partners", "rounds without", "validation"]
    heads += ["test AUROC alone", "test AUROC federated", "sent", "received"]
    lead = paragraph(
        "Partners: distinct centers whose trunk was merged. Validation: after the last committed "
        "round. Test AUROC with its 95 % interval."
    )
    return lead + table(heads, rows, right=("rounds", "partners", "validation", "sent", "received"))


def _metric(found: ValidationRecord | None) -> str:
    """The validation metric, by name where it is not the others'."""
    if found is None:
        return MISSING
    name = "" if found.metric == "auroc" else f" ({metric_name(found.metric)})"
    return f"{number(found.value)}{name}"


def interval(auroc: Auroc | None) -> str:
    """«0.712 (0.65–0.77)», without what is not known."""
    if auroc is None:
        return MISSING
    if auroc.value is None:
        return "one class only"
    bounds = "" if auroc.low is None else f" ({auroc.low:.2f}–{auroc.high:.2f})"
    return f"{auroc.value:.3f}{bounds}"


def _one_class(each: Compared) -> bool:
    return each.federated is not None and each.federated.value is None


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
