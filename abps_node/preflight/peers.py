"""Checks of whether the other centers can be found, and this one by them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from abps_node.cli.human import count
from abps_node.config import CenterConfig
from abps_node.discovery import Sighting, make_discovery
from abps_node.errors import TransportError
from abps_node.members_file import with_members
from abps_node.preflight.broker import check_broker
from abps_node.preflight.finding import Finding, ok, warning

_NOT_STARTED: Final = "nothing, if that center has not started yet; else look at its log"
_SHOWN: Final = 3
"""So many centers without an address are listed one by one."""


def check_peers(config: CenterConfig) -> Iterator[Finding]:
    """Who can be found now; raises ``TransportError`` if the shared folder cannot be used.

    A broker is asked over the network; also raises what ``check_broker`` raises.
    """
    discovery = config.federation.discovery
    folder, broker = discovery.path, discovery.broker
    if broker is not None and config.mqtt is not None:
        sightings = yield from check_broker(config, broker, config.mqtt)
        if not sightings:
            return
        fix = _NOT_STARTED
    elif folder is not None:
        yield _folder(folder)
        fix = _NOT_STARTED
        sightings = make_discovery(with_members(config), config.id).readable()
    else:
        fix = "add its address to the roster, or leave it to that center to connect"
        sightings = make_discovery(with_members(config), config.id).readable()
    if not sightings:
        yield warning("peers", "no other center is on the roster", "add the others' entries")
        return
    missing = [sighting for sighting in sightings if sighting.address is None]
    have = "has" if len(sightings) - len(missing) == 1 else "have"
    others = count(len(sightings), "other center")
    found = f"{len(sightings) - len(missing)} of {others} {have} an address"
    yield ok("peers", f"{found} ({discovery.kind} discovery)")
    for sighting in missing[:_SHOWN]:
        yield warning("peers", _text(sighting), fix)
    if len(missing) > _SHOWN:
        yield warning("peers", f"and {len(missing) - _SHOWN} more without an address", fix)
    if config.bind is None and missing:
        yield warning(
            "peers",
            f"this center takes no connections: the {len(missing)} without an address stay "
            "unreachable as long as they have none",
            "nothing, if they are to start later; two centers without an address never meet",
        )


def _folder(folder: Path) -> Finding:
    """Whether the own address can be announced there; leaves nothing behind."""
    # Only the folder itself is ever made: a parent that is missing is a share not mounted.
    place = folder if folder.exists() else folder.parent
    try:
        with tempfile.TemporaryFile(dir=place, prefix="."):
            pass
    except OSError as error:
        raise TransportError(f"{place}: cannot be written: {error.strerror}") from error
    if place is folder:
        return ok("peers", f"{folder} can be written")
    return warning(
        "peers",
        f"{folder}: no such folder yet; the first center that starts makes it",
        "nothing, if no center has started yet; else mount the shared folder",
    )


def _text(sighting: Sighting) -> str:
    return f"{sighting.center}: {sighting.problem}"
