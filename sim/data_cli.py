"""`abps data`: public data sets and one's own as federations of centers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from protocol.contract import Contract
    from sim.datasets.base import Dataset, Progress

app = typer.Typer(help="Turn data sets into federations of centers.", no_args_is_help=True)

RECORD: Final = "data.json"
"""Beside federation.toml: where the centers come from, who was left out, and why."""
_MOST_AWAITED: Final = 10
"""Round 1 awaits all others, but no more than so many."""

DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where the files are; default: what ABPS_DATA_DIR says"),
]
Json = Annotated[bool, typer.Option("--json", help="as JSON")]


@app.command("list")
def list_(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the data sets, and whether their files are there."""
    from sim.datasets import DATASETS, where

    found = {name: where(name, data_dir) for name in DATASETS}
    if as_json:
        about = {
            name: {
                "about": entry.about,
                "centers": entry.centers,
                "source": entry.source,
                "files": list(entry.files),
                "found": found[name],
            }
            for name, entry in DATASETS.items()
        }
        typer.echo(json.dumps(about, indent=2, ensure_ascii=False))
        return
    for name, entry in DATASETS.items():
        typer.echo(f"{name:12} {entry.about}")
        typer.echo(f"{'':12} centers: {entry.centers}")
        typer.echo(f"{'':12} {entry.source}; {found[name]}")
    typer.echo("\nabps data show NAME lists what can be asked of one.")


@app.command()
def show(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Show a data set and the options that ``prepare`` takes for it."""
    from sim.datasets import find_entry
    from sim.datasets.arguments import described

    entry = find_entry(name)
    typer.echo(f"{name}: {entry.about}\ncenters: {entry.centers}\nsource: {entry.source}")
    typer.echo(f"files: {', '.join(entry.files) or 'none'}\n")
    for option, words, default, what in described(name):
        typer.echo(f"  {option:16} {words} (default: {default})")
        if what:
            typer.echo(f"  {'':16} {what}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def prepare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="as abps data list names it")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="new or empty")],
    data_dir: DataDir = None,
    preset: Annotated[
        str | None, typer.Option(help="of the policy; default: abps, or the data set's own")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="default: the preset's")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="what was written as JSON; progress goes to stderr")
    ] = False,
) -> None:
    """Write a federation directory that ``abps launch local`` runs as it is.

    Further options are those of the data set, such as --centers 20 or --partition dirichlet:
    ``abps data show NAME`` lists them. Centers that are too small are left out by name.
    """
    from launch.layout import require_unused, write_federation
    from sim.datasets import load
    from sim.datasets.arguments import parsed
    from sim.datasets.base import CENTER
    from sim.datasets.summary import lines, record
    from sim.division import rows_of
    from sim.federation import federation_of

    require_unused(out)
    options = parsed(name, context.args)
    with _progress(quiet=as_json) as progress:
        dataset = load(name, data_dir, options, progress)
    division = dataset.division(dataset.contract())
    contract = _contract(dataset, len(division.rows), preset, rounds)
    # Everything that a daemon would refuse is refused here, before anything is written.
    federation = federation_of(contract, division, dataset.name)
    bare = dataset.table.drop_columns([CENTER])
    write_federation(
        out, contract, {center: rows_of(bare, rows) for center, rows in division.rows.items()}
    )
    found = record(dataset, federation)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    (out / RECORD).write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
        return
    for line in lines(found):
        typer.echo(line)
    typer.echo(f"\nwrote {out}; all that was left out is named in {out / RECORD}")
    typer.echo(f"next: abps launch local {shlex.quote(str(out))}")


def _contract(dataset: Dataset, centers: int, preset: str | None, rounds: int | None) -> Contract:
    """The data set's contract with the policy that was asked for."""
    base = dataset.base
    policy: dict[str, Any] = {}
    if preset is not None:
        policy["preset"] = preset
    elif base is not None:
        policy = base.policy.model_dump(exclude_unset=True)
    if rounds is not None:
        policy["rounds"] = rounds
    pacing: dict[str, Any] = {"min_peers": _MOST_AWAITED}
    if base is not None:
        pacing = {"min_peers": 1, **base.pacing.model_dump(exclude_unset=True)}
    pacing["min_peers"] = min(pacing["min_peers"], centers - 1)
    return dataset.contract(policy=policy, pacing=pacing)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress | None]:
    """A bar on the terminal while files are read; nothing where there is no terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Bars(console=console, transient=True) as bars:
        task = bars.add_task("reading", total=None)

        def told(what: str, share: float | None) -> None:
            bars.update(task, description=what, total=None if share is None else 1.0)
            bars.update(task, completed=share or 0.0)

        yield told
