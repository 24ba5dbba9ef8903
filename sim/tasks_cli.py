"""`abps sim tasks`: clients with different tasks and private features, FedCARE's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sim.cli_options import DataDir

app = typer.Typer(
    help="Clients with different tasks and private features: FedCARE's tables.",
    no_args_is_help=True,
)

Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="results: files or directories")
]
Rows = Annotated[str | None, typer.Option(metavar="A,B", help="only these rows")]


@app.command()
def methods() -> None:
    """List the methods."""
    from sim.multi.methods import METHODS

    for name, entry in METHODS.items():
        typer.echo(f"{name:20} {entry.about}")


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="an experiment")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="of the results; may hold some already")],
    data_dir: DataDir = None,
    seeds: Annotated[str | None, typer.Option(metavar="11,22", help="default: the file's")] = None,
    rows: Rows = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; default: all cores")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print all results, without curves, as the last line")
    ] = False,
) -> None:
    """Run all rows × seeds of an experiment that have no result in DIR yet."""
    from sim import results_files
    from sim.bars import bars_shown, cells_of
    from sim.multi.sweep import plan, read_experiment
    from sim.multi.tables import table, text
    from sim.sweep import sweep as run_all
    from sim.sweep_cli import numbers

    chosen = rows.split(",") if rows else None
    planned = plan(read_experiment(file), out, data_dir, numbers(seeds), chosen)
    with bars_shown() as bars:
        results = run_all(planned, jobs, cells_of(bars))
    if as_json:
        typer.echo(json.dumps(results_files.summary(results), ensure_ascii=False))
        return
    for line in text(table(results)):
        typer.echo(line)


@app.command()
def table(
    paths: Paths,
    markdown: Annotated[bool, typer.Option("--markdown", help="for a page")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="also write all results there, without curves"),
    ] = None,
) -> None:
    """Print each task's mean ± standard deviation over seeds, beside the paper's figures."""
    from dataclasses import asdict

    from sim import results_files
    from sim.multi import tables

    results = results_files.read(paths)
    found = tables.table(results)
    if summary is not None:
        results_files.write(summary, results_files.summary(results))
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], indent=2, ensure_ascii=False))
        return
    for line in tables.markdown(found) if markdown else tables.text(found):
        typer.echo(line)


@app.command()
def plot(
    paths: Paths,
    out: Annotated[Path, typer.Option(metavar="DIR", help="of the pictures, PNG and SVG")],
    rows: Rows = None,
) -> None:
    """Draw the conflict between the tasks over the rounds."""
    from sim import results_files
    from sim.multi import plots

    for path in plots.draw(results_files.read(paths), out, rows.split(",") if rows else None):
        typer.echo(path)
