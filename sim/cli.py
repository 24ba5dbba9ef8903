"""`abps sim`: methods against each other on simulated federations, tables and pictures of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from sim.datasets.base import Progress
    from sim.sources import Source

app = typer.Typer(help="Simulate a federation under any of the methods.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where the files are; default: what ABPS_DATA_DIR says"),
]
Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="results: files or directories")
]
_OPEN = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command()
def methods() -> None:
    """List the methods, with what their policies set."""
    from sim.methods import METHODS

    for name, entry in METHODS.items():
        summary = (type(entry.make()).__doc__ or "").partition("\n")[0]
        typer.echo(f"{name:30} {entry.policy.get('preset', ''):20} {summary}".rstrip())


@app.command(context_settings=_OPEN)
def run(
    context: typer.Context,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="as abps sim methods lists it")],
    data: Annotated[str | None, typer.Option(metavar="NAME", help="a data set")] = None,
    federation: Annotated[
        Path | None, typer.Option(metavar="DIR", help="a federation directory, instead of --data")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of splits, weights and all draws")] = 11,
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
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write the result there")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the result as JSON, as the last line")
    ] = False,
) -> None:
    """Run one method with one seed.

    Further options are those of the data set, such as --centers 20: ``abps data show NAME`` lists
    them.
    """
    from sim import results_files
    from sim.runner import Cell
    from sim.runner import run as run_cell
    from sim.tables import told_of

    source = _source(data, federation, data_dir, context.args)
    policy = _policy(set_ or [], rounds)
    scope = _scope(early_stop)
    cell = Cell(method, seed, source, policy=policy, early_stop=scope, beliefs=beliefs)
    with _bars() as bars:
        result = run_cell(cell, _reading(bars), _rounds(bars))
    if out is not None:
        results_files.write(out, result)
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False, allow_nan=False))
        return
    for line in told_of(result):
        typer.echo(line)


@app.command(context_settings=_OPEN)
def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="an experiment")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="of the results; may hold some already")],
    data: Annotated[str | None, typer.Option(metavar="NAME", help="default: the file's")] = None,
    data_dir: DataDir = None,
    seeds: Annotated[str | None, typer.Option(metavar="11,22", help="default: the file's")] = None,
    rows: Annotated[str | None, typer.Option(metavar="A,B", help="only these rows")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; default: all cores")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print all results, without curves, as the last line")
    ] = False,
) -> None:
    """Run all rows × seeds of an experiment that have no result in DIR yet.

    Further options are those of the data set, as in ``abps sim run``.
    """
    from sim import results_files
    from sim.sweep import plan, read_experiment
    from sim.sweep import sweep as run_all
    from sim.tables import table, text

    experiment = read_experiment(file)
    name = data or experiment.data
    options = _options(name, context.args) if context.args else {}
    planned = plan(
        experiment, out, data, options, data_dir, _numbers(seeds), rows.split(",") if rows else None
    )
    with _bars() as bars:
        results = run_all(planned, jobs, _cells(bars))
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
    """Print mean ± standard deviation over seeds, beside the paper's figures."""
    from dataclasses import asdict

    from sim import results_files, tables

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
    rows: Annotated[
        str | None, typer.Option(metavar="A,B", help="whose curves; default: a choice of eight")
    ] = None,
) -> None:
    """Draw accuracy against bytes, curves, isolation by cause and the beliefs."""
    from sim import plots, results_files

    results = results_files.read(paths)
    for path in plots.draw(results, out, rows.split(",") if rows else None):
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
    return Source.of(data or "", _options(data, words), data_dir)


def _options(data: str | None, words: list[str]) -> dict[str, Any]:
    from abps_node.errors import ConfigError
    from sim.datasets.arguments import parsed

    if data is None:
        raise ConfigError(f"sim: found {words[0]!r}, allowed with --data only")
    return parsed(data, words)


def _policy(pairs: list[str], rounds: int | None) -> dict[str, Any]:
    """``gamma=0.1`` as TOML has it; what is no TOML value is text."""
    import tomllib

    from abps_node.errors import ConfigError

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--set: found {pair!r}, allowed: KEY=VALUE")
        try:
            found[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = text
    return found if rounds is None else {**found, "rounds": rounds}


def _scope(text: str) -> Any:
    from abps_node.errors import ConfigError

    if text not in ("network", "center"):
        raise ConfigError(f"--early-stop: found {text!r}, allowed: network, center")
    return text


def _numbers(text: str | None) -> list[int] | None:
    from abps_node.errors import ConfigError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds: found {text!r}, allowed: numbers, commas between") from None


@contextmanager
def _bars() -> Iterator[Bars | None]:
    """Bars on the terminal; nothing where there is none."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Bars(console=console, transient=True) as bars:
        yield bars


def _reading(bars: Bars | None) -> Progress | None:
    if bars is None:
        return None
    task = bars.add_task("reading", total=None)

    def told(what: str, share: float | None) -> None:
        bars.update(task, description=what, total=None if share is None else 1.0)
        bars.update(task, completed=share or 0.0)

    return told


def _rounds(bars: Bars | None) -> Callable[[int, int], None] | None:
    if bars is None:
        return None
    task = bars.add_task("rounds", total=None)
    return lambda done, most: bars.update(task, completed=done, total=most)


def _cells(bars: Bars | None) -> Callable[[dict[str, Any], int, int], None]:
    """A bar on the terminal, a line per cell elsewhere."""
    task = None if bars is None else bars.add_task("cells", total=None)

    def told(result: dict[str, Any], done: int, most: int) -> None:
        words = f"{result['name']}, seed {result['seed']}"
        if bars is None or task is None:
            typer.echo(f"{done}/{most} {words}: {result['seconds']:.1f} s", err=True)
        else:
            bars.update(task, description=words, completed=done, total=most)

    return told
