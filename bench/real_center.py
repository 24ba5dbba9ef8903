"""A real center as a process of its own, and beside it the config of the peer that is played."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import child_process
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from abps_node.config import CenterConfig
from abps_node.discovery import make_discovery
from launch.layout import write_federation

CENTER: Final = "center"
PEER: Final = "peer"
START_S: Final = 60.0
UNIT: Final = "CHF"
"""The care unit of the demo whose patients the center holds."""

Changes = Mapping[str, Mapping[str, Any]]
"""Section of the contract to key to value."""

_RHC: Final = Path(__file__).resolve().parents[1] / "examples" / "rhc"


class StartError(Exception):
    """The center ended instead of listening."""


@dataclass(frozen=True)
class RealCenter:
    """A daemon that listens."""

    config: CenterConfig
    peer: CenterConfig
    address: str


def contract(changes: Changes) -> dict[str, Any]:
    """The demo's contract with these changes to its sections."""
    values = tomllib.loads((_RHC / "contract.toml").read_text(encoding="utf-8"))
    for section, entries in changes.items():
        values[section] = {**values.get(section, {}), **entries}
    return values


@asynccontextmanager
async def running_center(directory: Path, changes: Changes) -> AsyncIterator[RealCenter]:
    """Write a federation of two into ``directory`` and run the daemon of one of them."""
    table = pacsv.read_csv(_RHC / "rhc.csv.gz")
    patients = table.filter(pc.equal(table["unit"], UNIT)).drop_columns(["unit"])
    layout = write_federation(
        directory, contract(changes), {CENTER: patients, PEER: patients.slice(0, 50)}
    )
    config, peer = layout.centers
    console = directory / "console.log"
    command = [sys.executable, "-m", "abps_node", "run", str(config.path)]
    child = await child_process.start(CENTER, command, console)
    try:
        yield RealCenter(config, peer, await _address(child, peer))
    finally:
        await child_process.stop_all([child], child_process.STOP_GRACE_S, asyncio.Event())


async def _address(child: child_process.Child, peer: CenterConfig) -> str:
    """Where the center listens, as its peers learn it."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def note(center: str, address: str | None) -> None:
        if center == CENTER and address is not None and not found.done():
            found.set_result(address)

    def give_up(_: object = None) -> None:
        if not found.done():
            said = child.console.read_text(encoding="utf-8")[-2000:]
            found.set_exception(StartError(f"no address, exit code {child.exit_code}:\n{said}"))

    loop = asyncio.get_running_loop()
    timer = loop.call_later(START_S, give_up)
    ended = loop.create_task(child.process.wait())
    ended.add_done_callback(give_up)
    watch = loop.create_task(make_discovery(peer.federation, peer.id).watch(note))
    try:
        return await found
    finally:
        timer.cancel()
        watch.cancel()
        ended.cancel()
