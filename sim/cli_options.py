"""What several commands of the simulator take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

OPEN: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of commands that take the options of a data set, too."""
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where the files are; default: what ABPS_DATA_DIR says"),
]


def options_of(data: str | None, words: list[str]) -> dict[str, Any]:
    """Options of a data set, from words of the command line; ``ConfigError`` without one."""
    from abps_node.errors import ConfigError
    from sim.datasets.arguments import parsed

    if data is None:
        raise ConfigError(f"sim: found {words[0]!r}, allowed with --data only")
    return parsed(data, words)
