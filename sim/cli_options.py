"""What several commands of the simulator take, and how they tell what they found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from sim.kinds import Kind
    from sim.results_files import Result

OPEN: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of commands that take the options of a data set, too."""
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where the files are; default: what ABPS_DATA_DIR says"),
]
Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="results: files or directories")
]
Seed = Annotated[int, typer.Option(min=0, help="of splits, weights and all draws")]
ResultFile = Annotated[Path | None, typer.Option(metavar="FILE", help="write the result there")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON, as the last line")]


def options_of(data: str | None, words: list[str]) -> dict[str, Any]:
    """Options of a data set, from words of the command line; ``ConfigError`` without one."""
    from abps_node.errors import ConfigError
    from sim.datasets.arguments import parsed

    if data is None:
        raise ConfigError(f"sim: found {words[0]!r}, allowed with --data only")
    return parsed(data, words)


def task_options_of(data: str, words: list[str]) -> dict[str, Any]:
    """Options of a federation with tasks, from words of the command line."""
    from sim.datasets.arguments import parsed_as
    from sim.multi.clients import Options

    return parsed_as(Options, data, words)


def pairs_of(pairs: list[str], rounds: int | None) -> dict[str, Any]:
    """``gamma=0.1`` as TOML has it; what is no TOML value is text. ``rounds`` is one more."""
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


def tell(kind: Kind, result: Result, out: Path | None, as_json: bool) -> None:
    """The end of `run`: the result on the terminal, and in a file if one is wanted."""
    from sim import results_files

    if out is not None:
        results_files.write(out, result)
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False, allow_nan=False))
        return
    for line in kind.tables.told_of(result):
        typer.echo(line)


def register_table(app: typer.Typer, kind: Kind) -> None:
    """Add `table` to ``app``."""

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

        from sim import results_files

        results = results_files.read(paths)
        found = kind.tables.table(results)
        if summary is not None:
            results_files.write(summary, results_files.summary(results))
        if as_json:
            rows = [asdict(row) for row in found]
            typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        for line in kind.tables.markdown(found) if markdown else kind.tables.text(found):
            typer.echo(line)
