"""`abps run`: the daemon in the foreground."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abps_node.errors import DataError, NodeError
from abps_node.exits import ExitCode, exit_code_for

if TYPE_CHECKING:
    from abps_node.config import CenterConfig
    from abps_node.daemon import Begin

_log = logging.getLogger("abps_node.run")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("run")(run)


def run(
    config: Annotated[Path, typer.Argument(metavar="CENTER.TOML", help="the center's file")],
) -> None:
    """Take part in the federation, in the foreground.

    Ends by itself after the last round. Logs go to stderr, for people on a terminal and as JSON
    lines otherwise, and as JSON lines to log.jsonl in the state directory. SIGTERM and Ctrl-C
    say goodbye to partners and end with exit code 3; the same command then goes on from the
    last finished round.
    """
    from abps_node.config import load_center_config

    raise typer.Exit(run_logged(load_center_config(config)))


def run_logged(
    config: CenterConfig, console_level: str = "debug", begin: Begin | None = None
) -> int:
    """Set up the logs of this process, run the daemon, log how it ended; returns the exit code.

    Below ``console_level`` lines go to the state directory alone. ``begin``: see ``run_center``.

    For the main thread only, because of signals. Raises ``StoreError`` if not even the log can be
    written. Everything else that goes wrong is logged, so that a center which nobody watches leaves
    the reason behind.
    """
    from abps_node import logs

    logs.setup(config.id, config.state_dir, config.log_level, console_level=console_level)
    try:
        with _stoppable():
            from abps_node.daemon import run_center

            code = run_center(config, begin)
    except NodeError as error:
        code = exit_code_for(error)
        text = error.without_cell if isinstance(error, DataError) else str(error)
        _log.error("%s", text, extra=_ended(code))
    except Exception:  # noqa: BLE001 - the root of the daemon: log the bug, end with its own code
        code = ExitCode.INTERNAL
        _log.critical("a bug ended the daemon", exc_info=True, extra=_ended(code))
    return code


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT end the process with the right code until the daemon handles them itself.

    Importing torch and reading the table takes seconds, in which a supervisor may change its mind.
    """
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: object) -> None:
    # No exception: extension modules that are being imported swallow those, and go on half made.
    # Nothing is lost, since the state survives the loss of the process at any instant.
    _log.info(
        "%s received before the start", signal.Signals(number).name, extra=_ended(ExitCode.STOPPED)
    )
    os._exit(ExitCode.STOPPED)


def _ended(code: int) -> dict[str, object]:
    return {"event": "ended", "fields": {"exit_code": int(code)}}
