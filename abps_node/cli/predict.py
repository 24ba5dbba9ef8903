"""`abps predict`: scores for new patients."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.exits import ExitCode

if TYPE_CHECKING:
    from abps_node.predict import Scores
    from abps_node.trained import TrainedModel
    from abps_node.trained_heads import TrainedHeads

_ROWS_SHOWN = 20


class Model(StrEnum):
    """Which model."""

    BEST = "best"
    LAST = "last"


class Scoring(StrEnum):
    """Which model scores."""

    BEST = "best"
    LAST = "last"
    STAGE2 = "stage2"


ModelOption = Annotated[
    Model,
    typer.Option(
        "--model", help="best: on the own validation patients; last: of the last committed round"
    ),
]
Center = Annotated[
    Path,
    typer.Argument(metavar="CENTER.TOML", help="the center's file, its folder, or its state"),
]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("predict")(predict)


def predict(
    center: Center,
    table: Annotated[
        Path, typer.Option("--input", metavar="TABLE", help=".csv, .csv.gz or .parquet")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help=".csv or .parquet")],
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="hand this column through; may be repeated"),
    ] = None,
    model: Annotated[
        Scoring,
        typer.Option(
            "--model",
            help="best: on the own validation patients; last: of the last committed round; stage2: "
            "after private fine-tuning",
        ),
    ] = Scoring.BEST,
    force: Annotated[bool, typer.Option("--force", help="replace FILE if it exists")] = False,
) -> None:
    """Score new patients with the center's model, prepared exactly as for its training.

    The table needs the features of the contract, no label; other columns are named and not used.
    The scores have one row for each row of the table, in its order. A row that cannot be used is
    named by its number, stays without an answer, and makes the exit code 11. No cell of a
    patient is shown or logged. For research, not for the care of patients.
    """
    from abps_node.cli.state_path import state_dir_of
    from abps_node.predict import require_writable, score, write_scores
    from abps_node.trained_heads import load_any

    state_dir = state_dir_of(center)
    require_writable(table, out, force)
    trained = load_any(state_dir, model.value)
    scores = score(trained, table, ids or ())
    write_scores(scores, out, force)
    for name, text in _summary(trained, scores):
        typer.echo(f"{name:10} {text}")
    typer.echo(f"{'wrote':10} {out}")
    unusable = scores.unusable
    for position in unusable[:_ROWS_SHOWN]:
        number = scores.row_numbers[position]
        typer.echo(f"abps: {table}: row {number}: {scores.problems[position]}", err=True)
    if len(unusable) > _ROWS_SHOWN:
        rest = len(unusable) - _ROWS_SHOWN
        typer.echo(f"abps: and {rest} more rows; all have a problem in {out}", err=True)
    raise typer.Exit(ExitCode.DATA if unusable else ExitCode.OK)


def _summary(trained: TrainedModel | TrainedHeads, scores: Scores) -> list[tuple[str, str]]:
    from abps_node.cli.human import count, metric_name

    record, contract = trained.record, trained.contract
    checked = f"{metric_name(record.validation.metric)} {record.validation.value:.3f}"
    lines = [
        (
            "model",
            f"{trained.which}, of {trained.center} after round {record.round}, contract "
            f"{contract.digest()[:12]}, {checked} on {record.validation.rows} validation rows",
        ),
        *(("outcome", outcome) for outcome in trained.outcomes),
    ]
    if scores.ignored:
        lines.append(("not used", ", ".join(scores.ignored)))
    rows = len(scores.problems)
    lines += [
        ("filled in", f"{name} was missing in {count(missing, 'row')}")
        for name, missing in scores.filled.items()
    ]
    lines += [
        ("unknown", f"{name} had a level that the model does not know in {count(many, 'row')}")
        for name, many in scores.unknown.items()
    ]
    lines.append(("scored", f"{rows - len(scores.unusable)} of {count(rows, 'row')}"))
    return lines
