"""The address card: the small file by which a center tells where it listens."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from abps_node.config_files import CurveKey, Id, PeerAddress
from protocol.contract import Strict

MAX_CARD_BYTES: Final = 4096
SUFFIX: Final = ".json"

Signature = tuple[int, int, int]
"""Inode, size and time of modification (ns): equal means that the file has not changed."""


class AddressCard(Strict):
    """Where a center listens, and since which of its starts."""

    version: Literal[1] = 1
    id: Id
    public_key: CurveKey
    address: PeerAddress
    incarnation: int = Field(ge=1, lt=2**53)


SignedCard = tuple[Signature, AddressCard]


class UnusableCard(Exception):
    """A file that is no card; the text says what was found and what is allowed."""


def card_path(folder: Path, center_id: str) -> Path:
    """Where a center's card lies."""
    return folder / f"{center_id}{SUFFIX}"


def card_text(card: AddressCard) -> str:
    """What stands in the file."""
    return card.model_dump_json(indent=2) + "\n"


def write_card(folder: Path, card: AddressCard) -> None:
    """Write or replace a card; readers see the old one or the new one. Raises ``OSError``."""
    # Not its parents: where a network folder is not mounted, none should appear in its place.
    folder.mkdir(exist_ok=True)
    # Others may write to the folder: behind a name that they foresee could be a link to a file of
    # ours, or a pipe. So the name is made up, and the file must be new.
    partial = folder / f".{card.id}.{secrets.token_hex(8)}.partial"
    try:
        with partial.open("x", encoding="utf-8") as file:
            file.write(card_text(card))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(card_path(folder, card.id))
    finally:
        partial.unlink(missing_ok=True)


def read_card(path: Path, last: SignedCard | None = None) -> SignedCard:
    """Read a card, or return ``last`` if the file has not changed since.

    Raises ``UnusableCard``, ``FileNotFoundError`` or another ``OSError``. The file is opened even
    if nothing changed, because on NFS only that makes the client look at the server again.
    """
    try:
        # A link could point anywhere and a named pipe would block for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnusableCard("found a link, allowed: a regular file") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnusableCard("found no regular file, allowed: a regular file")
        signature = (found.st_ino, found.st_size, found.st_mtime_ns)
        if last is not None and signature == last[0]:
            return last
        content = file.read(MAX_CARD_BYTES + 1)
    if len(content) > MAX_CARD_BYTES:
        raise UnusableCard(f"found more than {MAX_CARD_BYTES} bytes, allowed: {MAX_CARD_BYTES}")
    return signature, _parse(content, path)


def _parse(content: bytes, path: Path) -> AddressCard:
    try:
        card = AddressCard.model_validate_json(content)
    except ValidationError as error:
        raise UnusableCard(first_problem(error, "the file")) from error
    if card.id != path.name.removesuffix(SUFFIX):
        raise UnusableCard(f"id: found {card.id!r}, allowed: the name of the file")
    return card


def first_problem(error: ValidationError, whole: str) -> str:
    """Where and what is wrong; ``whole`` names the card itself."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or whole
    return f"{where}: {first['msg']}"
