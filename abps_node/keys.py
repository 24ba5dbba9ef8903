"""CURVE key pairs of a center and the two small text files that hold them.

A key file is comment lines (``#``) and one line with the key, 32 bytes as 40 characters of z85
(ZeroMQ RFC 32). The secret file is readable by its owner only; the public one goes on the
federation's roster. Identity is the public key, never what a message claims.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from abps_node.errors import KeyFileError
from abps_node.private_files import MAX_BYTES, read_private, require_private

_KEY_CHARACTERS: Final = 40
_SECRET_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


@dataclass(frozen=True)
class KeyPair:
    """Public and secret CURVE key, z85. The secret is left out of ``repr``."""

    public: str
    secret: str = field(repr=False)


@lru_cache(maxsize=4096)
def is_public_key(text: str) -> bool:
    """Whether the text is the z85 form of 32 bytes, as CURVE keys are.

    Remembered, since every center checks the whole roster; so nothing secret may be asked here.
    """
    return _is_key(text)


def _is_key(text: str) -> bool:
    if len(text) != _KEY_CHARACTERS:
        return False
    try:
        z85.decode(text)
    except (ValueError, KeyError, struct.error):  # not ASCII, no z85 digit, beyond 32 bits
        return False
    return True


def generate() -> KeyPair:
    """A new key pair from the operating system's randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


def write_key_pair(directory: str | Path, name: str) -> KeyPair:
    """Generate a pair and write ``<name>.secret`` (0600) and ``<name>.public`` into ``directory``.

    The directory is made with mode 0700; one that exists must not be open to others. Nothing is
    ever overwritten: if either file exists, ``KeyFileError`` says so and nothing is written.
    """
    folder = Path(directory)
    secret_path, public_path = folder / f"{name}.secret", folder / f"{name}.public"
    try:
        folder.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        require_private(folder, folder.stat().st_mode, "0700")
        for path in (secret_path, public_path):
            if path.exists() or path.is_symlink():
                raise KeyFileError(f"{path}: found an existing file, keys are never overwritten")
        pair = generate()
        _write_new(secret_path, f"# Secret key of {name}. Never copy, never send.\n{pair.secret}\n")
        _write_new(public_path, f"# Public key of {name}, for the roster.\n{pair.public}\n", 0o644)
    except OSError as error:
        raise KeyFileError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return pair


def load_key_pair(secret_path: str | Path) -> KeyPair:
    """Read a secret key; the public one is derived from it.

    ``KeyFileError`` names the file and what is wrong with it: missing, not a regular file, readable
    by group or others, or not exactly one z85 key.
    """
    path = Path(secret_path)
    text = read_private(path, "a secret key file")
    secret = _only_key(path, text)
    return KeyPair(zmq.curve_public(secret.encode("ascii")).decode("ascii"), secret)


def _write_new(path: Path, text: str, mode: int = _SECRET_MODE) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _only_key(path: Path, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise KeyFileError(
            f"{path}: found more than {MAX_BYTES} bytes, allowed: comment lines and a key"
        )
    lines = [line.strip() for line in content.decode("latin-1").splitlines()]
    keys = [line for line in lines if line and not _is_comment(line)]
    # What was found is never quoted: it may be most of a secret.
    if len(keys) != 1:
        raise KeyFileError(f"{path}: found {len(keys)} lines with content, allowed: exactly one")
    if not _is_key(keys[0]):
        raise KeyFileError(
            f"{path}: found a line of {len(keys[0])} characters that is no key, "
            "allowed: 40 characters of z85"
        )
    return keys[0]


def _is_comment(line: str) -> bool:
    # «#» is also a z85 digit, hence the blank that a comment must have.
    return line == "#" or line.startswith("# ")
