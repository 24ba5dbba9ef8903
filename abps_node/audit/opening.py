"""The record of what leaves the center, begun anew at each start."""

from __future__ import annotations

import logging
from pathlib import Path

from abps_node.audit.chain import FOLDER, Head, tail_of
from abps_node.audit.outbound import OutboundRecord
from abps_node.store import Store

_log = logging.getLogger(__name__)


def open_record(
    state_dir: Path, store: Store, center: str, incarnation: int, contract: str
) -> OutboundRecord:
    """Begin this start's file, and let the store vouch for it from now on.

    Lines that the store knows and the record lacks are named in the log; the new file goes on from
    what is there, so that ``abps outbound --verify`` finds the gap ever after. Raises
    ``StoreError``.
    """
    known = store.anchor()
    if known is not None and (problem := _missing(state_dir, known)):
        text = f"{problem}; `abps outbound --verify` names the place"
        _log.error("%s", text, extra={"event": "outbound-broken"})
    record = OutboundRecord(state_dir, center, incarnation, contract)
    store.anchored_by(record.sync)
    return record


def _missing(state_dir: Path, known: Head) -> str:
    """What the store knows of and the folder does not hold; empty if nothing."""
    path = state_dir / FOLDER / known.file
    try:
        newest = tail_of(path).head
    except OSError as error:
        return f"{path}: of what left this center a file is missing ({error.strerror})"
    if newest is None or newest.number < known.number:
        found = 0 if newest is None else newest.number
        return f"{path}: found {found} lines of what left this center, allowed: {known.number}"
    return ""
