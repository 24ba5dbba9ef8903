"""`abps sim tasks`: clients with different tasks and private features, FedCARE's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sim import sweep_cli
from sim.cli_options import (
    OPEN,
    AsJson,
    DataDir,
    Paths,
    ResultFile,
    Seed,
    pairs_of,
    register_table,
    task_options_of,
    tell,
)
from sim.kinds import TASKS

app = typer.Typer(
    help="Clients with different tasks and private features: FedCARE's tables.",
    no_args_is_help=True,
)


@app.command()
def methods() -> None:
    """List the methods."""
    from sim.multi.methods import METHODS

    for name, entry in METHODS.items():
        typer.echo(f"{name:20} {entry.about}")


@app.command(context_settings=OPEN)
def run(
    context: typer.Context,
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="as abps sim tasks methods lists it")
    ],
    data: Annotated[str, typer.Option(metavar="NAME", help="a data set with tasks")],
    seed: Seed = 11,
    data_dir: DataDir = None,
    rounds: Annotated[int | None, typer.Option(help="default: 100")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="a setting; may be repeated"),
    ] = None,
    out: ResultFile = None,
    as_json: AsJson = False,
) -> None:
    """Run one method with one seed.

    Further options are those of the federation: --clients 10, --rho 0.3, --tasks-per-client 2,
    --partition dirichlet, --alpha 0.5, --patients 15000.
    """
    from sim.bars import bars_shown, rounds_of
    from sim.multi.runner import TaskCell
    from sim.multi.runner import run as run_cell

    options = task_options_of(data, context.args)
    cell = TaskCell(method, seed, data, options, pairs_of(set_ or [], rounds), data_dir=data_dir)
    with bars_shown() as bars:
        result = run_cell(cell, rounds_of(bars))
    tell(TASKS, result, out, as_json)


sweep_cli.register(app, TASKS)
register_table(app, TASKS)


@app.command()
def compare(
    paths: Paths,
    row: Annotated[str, typer.Option(metavar="ROW", help="which is compared")] = "fedcare",
    markdown: Annotated[bool, typer.Option("--markdown", help="for a page")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Compare one row with all others, seed by seed: change in percent, and seeds ahead.

    (?) marks what the seeds do not tell from 0 (Student's t, 95 %).
    """
    from dataclasses import asdict

    from sim import results_files
    from sim.multi import compare as comparing

    found = comparing.compare(results_files.read(paths), row)
    if as_json:
        rows = [asdict(each) for each in found]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    tell_all = comparing.markdown if markdown else comparing.text
    for line in tell_all(found, row):
        typer.echo(line)


@app.command()
def plot(
    paths: Paths,
    out: Annotated[Path, typer.Option(metavar="DIR", help="of the pictures, PNG and SVG")],
    rows: Annotated[str | None, typer.Option(metavar="A,B", help="only these rows")] = None,
) -> None:
    """Draw what a varied option does, and the conflict between the tasks over the rounds."""
    from sim import results_files
    from sim.multi import plots

    for path in plots.draw(results_files.read(paths), out, rows.split(",") if rows else None):
        typer.echo(path)
