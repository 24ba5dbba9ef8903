"""The model card as Markdown. Nothing in it is about fewer patients than the contract allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from abps_node.export.contents import TOLERANCE, Agreement, Collaboration, Count, Input
from abps_node.export.measures import Bin, Measure
from abps_node.export.picture import one_line
from abps_node.trained import TrainedModel

_LIMITS = """\
This model is the result of research software. It is **not a medical device**, has not been reviewed
by any authority, and its predictions are not for the care of patients.

- It was trained and measured on patients of one center. Elsewhere, later, or for patients chosen in
  another way its probabilities can be wrong; measure it there before anything is concluded.
- It predicts what is recorded as the outcome in the table, with all errors of that record. A
  feature that matters for a prediction need not be a cause.
- It was not examined for differences between groups of patients.
- Parameters are functions of the training patients, also of those of its partners. Give the files
  only to those with whom aggregates of these patients may be shared.
"""


@dataclass(frozen=True)
class Facts:
    """All that the card is made of."""

    model: TrainedModel
    counts: Sequence[Count]
    measures: Sequence[Measure]
    """Empty where the test split is too small to be told of."""
    bins: Sequence[Bin]
    inputs: Sequence[Input]
    together: Collaboration
    agreement: Agreement
    versions: Mapping[str, str]
    graph_sha256: str
    day: str


def card(facts: Facts, picture: str | None) -> str:
    """The whole page; ``picture`` is the calibration plot's file beside it, if there is one."""
    contract = facts.model.contract
    sections = {
        f"Model card: {_plain(contract.data.label)}, center {facts.model.center}": _head(facts),
        "Intended use and limits": [_intended(facts), "", _LIMITS.rstrip()],
        "Patients": _patients(facts),
        "Performance": _performance(facts),
        "Calibration": _calibration(facts, picture),
        "Collaboration": _collaboration(facts),
        "Inputs": _inputs(facts),
        "How it was made": _made(facts),
    }
    lines: list[str] = []
    for number, (title, body) in enumerate(sections.items()):
        lines += [f"{'#' if number == 0 else '##'} {title}", "", *body, ""]
    return "\n".join(lines)


def _head(facts: Facts) -> Iterator[str]:
    model = facts.model
    hidden = " → ".join(map(str, (*model.mlp.widths[:-1], 1)))
    which = {"best": "the best on validation", "last": "the last"}[model.which]
    yield from _table(
        ["", ""],
        [
            ["predicts", f"the probability of `{_plain(model.contract.data.label)}` = 1"],
            ["center", f"`{model.center}`, federation «{_plain(model.contract.name)}»"],
            ["model", f"multilayer perceptron {hidden}, {model.mlp.size:,} parameters"],
            ["round", f"{model.record.round}, {which}"],
            ["contract", f"`{model.contract.digest()}`"],
            ["exported", facts.day],
        ],
    )


def _intended(facts: Facts) -> str:
    return (
        f"For research on predicting `{_plain(facts.model.contract.data.label)}` from the inputs "
        "below, in patients like those of this center."
    )


def _patients(facts: Facts) -> Iterator[str]:
    limits = facts.model.contract.data.card
    rows = [[count.name, _number(count.rows), _number(count.events)] for count in facts.counts]
    yield from _table(["split", "rows", "with the outcome"], rows)
    if any(None in (count.rows, count.events) for count in facts.counts):
        yield ""
        yield (
            f"«–»: not told, since it would be about fewer than {limits.min_patients} rows, or "
            f"about fewer than {limits.min_events} with or without the outcome, or would let "
            "somebody compute such a number."
        )


def _performance(facts: Facts) -> Iterator[str]:
    if not facts.measures:
        yield "Not told: the test split is too small."
        return
    yield "On the test split, which nothing in training or selection looks at, with bootstrap"
    yield "intervals. AUROC: 0.5 is chance, 1 perfect. Brier score: 0 is perfect. Calibration"
    yield "slope: 1 is ideal, below it predictions are too extreme."
    yield ""
    yield from _table(
        ["metric", "value", "95 % interval"],
        [
            [each.name, _decimal(each.value), f"{_decimal(each.low)} to {_decimal(each.high)}"]
            for each in facts.measures
        ],
    )


def _calibration(facts: Facts, picture: str | None) -> Iterator[str]:
    if picture is None:
        yield "Not told: the test split has too few patients for two bins."
        return
    yield f"![Predicted against observed]({picture})"
    yield ""
    yield from _table(
        ["rows", "mean prediction", "observed", "95 % interval"],
        [
            [
                f"{each.rows}",
                _decimal(each.predicted),
                _decimal(each.observed),
                f"{_decimal(each.low)} to {_decimal(each.high)}",
            ]
            for each in facts.bins
        ],
    )


def _collaboration(facts: Facts) -> Iterator[str]:
    together = facts.together
    yield f"Up to this model there were {together.rounds} rounds."
    yield ""
    if together.merged:
        yield from _table(
            ["partner whose trunk went in", "rounds", "last"],
            [[f"`{peer}`", f"{times}", f"{last}"] for peer, times, last in together.merged],
        )
    else:
        yield "No partner's trunk went in: the center trained alone."
    yield ""
    alone = sum(times for _, times, _ in together.isolated)
    if not alone:
        yield "No round was without a partner."
        return
    chosen = sum(times for _, times, intentional in together.isolated if intentional)
    yield f"Rounds without a partner: {alone}, {chosen} of them by the center's own choice."
    yield ""
    yield from _table(
        ["cause", "rounds", "own choice"],
        [[f"`{cause}`", f"{n}", "yes" if own else "no"] for cause, n, own in together.isolated],
    )


def _inputs(facts: Facts) -> Iterator[str]:
    yield "Missing values are filled in as in training, inside of the graph."
    yield ""
    rows = []
    for each in facts.inputs:
        feature = each.feature
        kind: str = feature.kind
        if feature.levels is not None:
            kind += ": " + ", ".join(f"`{_plain(level)}`" for level in feature.levels)
        share = "–" if each.missing is None else f"{each.missing:.1%}"
        unit = _plain(feature.unit or "")
        rows.append([f"`{_plain(feature.name)}`", kind, unit, share])
    yield from _table(["name", "kind", "unit", "missing in training"], rows)
    if any(each.missing is None for each in facts.inputs):
        yield ""
        yield "«–»: not told, since it would be about too few rows."
    if few := [each.feature.name for each in facts.inputs if each.few]:
        named = ", ".join(f"`{_plain(name)}`" for name in few)
        limit = facts.model.contract.data.card.min_patients
        yield ""
        yield (
            f"**Before these files are given away:** the values that stand in for missing ones of "
            f"{named} come from fewer than {limit} patients."
        )


def _made(facts: Facts) -> Iterator[str]:
    model, contract = facts.model, facts.model.contract
    training = contract.training
    yield from _table(
        ["", ""],
        [
            *([name, version] for name, version in facts.versions.items()),
            ["policy", f"{contract.policy.preset}, goal of the contract: {contract.policy.goal}"],
            [
                "local step",
                f"{training.epochs} epochs of Adam, learning rate {training.learning_rate:g}, "
                f"batches of {training.batch_size}",
            ],
            ["model file", f"`{model.file.name}`, SHA-256 `{model.file.sha256}`"],
            ["`model.onnx`", f"SHA-256 `{facts.graph_sha256}`"],
            [
                "checked",
                f"ONNX Runtime against PyTorch on {_rows(facts)} rows of this center: "
                f"probabilities differ by at most {facts.agreement.probability:.1e}, log-odds by "
                f"{facts.agreement.log_odds:.1e} (allowed {TOLERANCE:g})",
            ],
        ],
    )


def _rows(facts: Facts) -> str:
    """How many rows were compared, unless that would tell what the table of counts does not."""
    return f"{facts.agreement.rows}" if facts.counts[-1].rows is not None else "all"


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _plain(text: str) -> str:
    """Text from the contract, in one line and without what ends a code span."""
    return one_line(text).replace("`", "'")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
