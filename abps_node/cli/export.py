"""`abps export`: the model with its preprocessing in an open format, and a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from abps_node.cli.predict import Model, ModelOption


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("export")(export)


def export(
    config: Annotated[Path, typer.Argument(metavar="CENTER.TOML", help="the center's file")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="new or empty")],
    model: ModelOption = Model.BEST,
    force: Annotated[bool, typer.Option("--force", help="replace an earlier export")] = False,
) -> None:
    """Write the center's model as ONNX, with its preprocessing inside, and a model card.

    The graph takes the columns of the table as they are. It is checked against PyTorch on all rows
    of the center's table before anything is written. The card holds counts, metrics with intervals,
    calibration, partners, isolation and versions; small counts are left out as the contract says.
    Needs the packages onnx and onnxruntime.
    """
    from abps_node.atomic import require_free_folder, write_folder
    from abps_node.config import load_center_config
    from abps_node.export import FILES, export_model

    loaded = load_center_config(config)
    require_free_folder(out, force, FILES)
    made = export_model(loaded, model.value)
    write_folder(out, made.files)
    facts = made.facts
    typer.echo(
        f"model      {model.value}, of {facts.model.center} after round {facts.model.record.round}"
    )
    typer.echo(
        f"checked    ONNX Runtime against PyTorch on {facts.agreement.rows} rows: probabilities "
        f"differ by at most {facts.agreement.probability:.1e}"
    )
    for name in made.files:
        typer.echo(f"wrote      {out / name}")
