"""`abps sim`: methods against each other on simulated federations, tables and pictures of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim import sweep_cli, tasks_cli
from sim.cli_options import (
    OPEN,
    AsJson,
    DataDir,
    Paths,
    ResultFile,
    Seed,
    options_of,
    pairs_of,
    register_table,
    tell,
)
from sim.kinds import ONE_TASK

if TYPE_CHECKING:
    from sim.sources import Source

app = typer.Typer(help="Simulate a federation under any of the methods.", no_args_is_help=True)


@app.command()
def methods() -> None:
    """List the methods, with what their policies set."""
    from sim.methods import METHODS

    for name, entry in METHODS.items():
        summary = (type(entry.make()).__doc__ or "").partition("\n")[0]
        typer.echo(f"{name:30} {entry.policy.get('preset', ''):20} {summary}".rstrip())


@app.command(context_settings=OPEN)
def run(
    context: typer.Context,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="as abps sim methods lists it")],
    data: Annotated[str | None, typer.Option(metavar="NAME", help="a data set")] = None,
    federation: Annotated[
        Path | None, typer.Option(metavar="DIR", help="a federation directory, instead of --data")
    ] = None,
    seed: Seed = 11,
    data_dir: DataDir = None,
    rounds: Annotated[int | None, typer.Option(help="default: the method's")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="a key of the policy; may be repeated"),
    ] = None,
    early_stop: Annotated[
        str, typer.Option(help="whose utility stops: network or center")
    ] = "network",
    beliefs: Annotated[bool, typer.Option("--beliefs", help="keep all posterior means")] = False,
    out: ResultFile = None,
    as_json: AsJson = False,
) -> None:
    """Run one method with one seed.

    Further options are those of the data set, such as --centers 20: ``abps data show NAME`` lists
    them.
    """
    from sim.bars import bars_shown, reading, rounds_of
    from sim.results_files import make_folder
    from sim.runner import Cell
    from sim.runner import run as run_cell

    if out is not None:
        make_folder(out.parent)
    source = _source(data, federation, data_dir, context.args)
    policy = pairs_of(set_ or [], rounds)
    scope = _scope(early_stop)
    cell = Cell(method, seed, source, policy=policy, early_stop=scope, beliefs=beliefs)
    with bars_shown() as bars:
        result = run_cell(cell, reading(bars), rounds_of(bars))
    tell(ONE_TASK, result, out, as_json)


sweep_cli.register(app, ONE_TASK)
register_table(app, ONE_TASK)
app.add_typer(tasks_cli.app, name="tasks")


@app.command()
def plot(
    paths: Paths,
    out: Annotated[Path, typer.Option(metavar="DIR", help="of the pictures, PNG and SVG")],
    rows: Annotated[
        str | None, typer.Option(metavar="A,B", help="whose curves; default: a choice of eight")
    ] = None,
) -> None:
    """Draw accuracy against bytes, curves, isolation by cause and the beliefs."""
    from sim import plots, results_files

    results = results_files.read(paths)

    def told(words: str) -> None:
        typer.echo(words, err=True)

    for path in plots.draw(results, out, rows.split(",") if rows else None, told):
        typer.echo(path)


def _source(
    data: str | None, federation: Path | None, data_dir: Path | None, words: list[str]
) -> Source:
    from abps_node.errors import ConfigError
    from sim.sources import Source

    if (data is None) == (federation is None):
        raise ConfigError("sim run: give either --data NAME or --federation DIR")
    if federation is not None:
        if words:
            raise ConfigError(f"sim run: found {words[0]!r}, allowed with --data only")
        return Source(directory=federation)
    return Source.of(data or "", options_of(data, words), data_dir)


def _scope(text: str) -> Any:
    from abps_node.errors import ConfigError

    if text not in ("network", "center"):
        raise ConfigError(f"--early-stop: found {text!r}, allowed: network, center")
    return text
