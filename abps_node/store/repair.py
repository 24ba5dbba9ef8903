"""A state whose start number the others have already seen a higher one of, and the way out.

That happens when a state is lost, or comes back from an older backup: the others refuse it as an
old copy of the center, by the number in their hello and ours. Raising the number is safe, since it
only ever marks a later start; nothing else of the state changes.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abps_node.audit.chain import newest_start
from abps_node.errors import StoreError
from abps_node.store.connection import connect_to_write, readable_errors, transaction
from abps_node.store.reader import Reader
from abps_node.store.rows import PUT_EVENT
from abps_node.store.schema import STATE_FILE

MAX_STEP: Final = 1_000_000
"""What a peer claims beyond this is not believed: nobody starts so often."""
MAX_INCARNATION: Final = 2**53 - 2


@dataclass(frozen=True)
class Repair:
    """What is known about the number of starts, and what was made of it."""

    before: int
    after: int
    claims: dict[str, int]
    """Peer to the highest start of ours that it says to have seen."""
    recorded: int
    """The highest start that the record of what left the center knows."""


def repair(state_dir: Path, wanted: int | None) -> Repair:
    """Raise the start number to ``wanted``, or to the highest that is known of.

    The next start takes the number after it. Raises ``StoreError`` if the center is running, or if
    nothing has to be raised.
    """
    path = state_dir / STATE_FILE
    reader = Reader(state_dir)
    status = reader.status()
    if status.condition == "running":
        raise StoreError(f"{path}: found the center running, allowed: stopped; stop it first")
    claims = _claims(reader)
    recorded = newest_start(state_dir)
    before = status.incarnation
    believed = [claim for claim in claims.values() if claim <= before + MAX_STEP]
    after = wanted if wanted is not None else max([before, recorded, *believed])
    if wanted is not None and not before < wanted <= MAX_INCARNATION:
        raise StoreError(
            f"{path}: found start number {wanted}, allowed: {before + 1} to {MAX_INCARNATION}; a "
            "number that was used may never come back"
        )
    if after == before:
        told = ", ".join(f"{peer} {claim}" for peer, claim in claims.items()) or "nothing"
        raise StoreError(
            f"{path}: nothing to repair: start number {before}, the peers have seen {told}"
        )
    _raise_to(path, after, f"start number raised from {before} to {after}")
    return Repair(before, after, claims, recorded)


def _claims(reader: Reader) -> dict[str, int]:
    claims: dict[str, int] = {}
    for event in reader.events(kind="superseded-claim"):
        known = event.data.get("known")
        if event.peer is not None and isinstance(known, int):
            claims[event.peer] = max(known, claims.get(event.peer, 0))
    return claims


def _raise_to(path: Path, number: int, text: str) -> None:
    with readable_errors(path), closing(connect_to_write(path)) as db, transaction(db):
        db.execute("UPDATE meta SET incarnation = ? WHERE incarnation < ?", (number, number))
        db.execute(PUT_EVENT, (time.time(), 0, "repaired", "warning", None, text, "{}"))
