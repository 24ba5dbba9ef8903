"""A center's next key pair: made beside the present one, and put in its place.

Between the two steps the others learn of the new key and accept both (``abps peers add --until``),
so nobody is ever without a key that counts.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from abps_node.config import CenterConfig
from abps_node.errors import KeyFileError
from abps_node.keys import KeyPair, load_key_pair, write_key_pair
from abps_node.members_edit import checked_change, moment
from abps_node.members_file import append_change


@dataclass(frozen=True)
class NextKeys:
    """What was made, and what the others are to run."""

    secret: Path
    command: str


def prepare_keys(config: CenterConfig, until: str) -> NextKeys:
    """Make the next pair; from now on both are this center's own.

    ``KeyFileError`` if there is one already, ``ConfigError`` for an impossible date.
    """
    ends = moment(until, time.time())
    name = _next_secret(config).name.removesuffix(".secret")
    pair = write_key_pair(config.secret_key.parent, name)
    change = checked_change(
        at=time.time(), action="add", id=config.id, public_key=pair.public, until=ends
    )
    append_change(config.members, change)
    date = datetime.fromtimestamp(ends, UTC).isoformat(timespec="seconds")
    words = ["abps", "peers", "add", "center.toml", "--id", config.id]
    words += ["--public-key", pair.public, "--until", date]
    return NextKeys(_next_secret(config), shlex.join(words))


def take_into_use(config: CenterConfig) -> tuple[KeyPair, Path]:
    """Put the next pair in the place of the present one, which is kept under another name.

    The secret file is replaced in one step, so a daemon finds the one or the other.
    """
    secret, following = config.secret_key, _next_secret(config)
    if not following.exists():
        raise KeyFileError(f"{following}: found no next key; `abps keys rotate` makes one")
    pair = load_key_pair(following)
    former = secret.with_name(f"{secret.stem}.{datetime.now(UTC):%Y%m%d-%H%M%S}.former")
    try:
        former.hardlink_to(secret)
        public = following.with_suffix(".public")
        if public.exists():
            public.replace(secret.with_suffix(".public"))
        following.replace(secret)
    except OSError as error:
        raise KeyFileError(f"{error.filename}: cannot be replaced: {error.strerror}") from error
    return pair, former


def _next_secret(config: CenterConfig) -> Path:
    return config.secret_key.with_name(f"{config.secret_key.stem}.next.secret")
