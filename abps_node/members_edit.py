"""What people of a center change in its members, checked before it is written down."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from abps_node.config import CenterConfig
from abps_node.errors import ConfigError
from abps_node.members_file import append_change, current_membership
from abps_node.membership import Change, Membership, holder

_SPAN: Final = re.compile(r"^(\d{1,6})([smhd])$")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_member(
    config: CenterConfig,
    center: str,
    public_key: str,
    address: str | None,
    until: str | None,
) -> Membership:
    """Admit a member, or a further key of one; returns the members afterwards.

    ``ConfigError`` for a key that is another's, and for a second key without an end of the first.
    """
    found = current_membership(config)
    owner = holder(found, public_key)
    if owner is not None and owner != center:
        raise ConfigError(f"--public-key: found a key of {owner}, allowed: one that nobody has")
    held = [key for key in found.keys.get(center, ()) if key != public_key]
    if held and until is None:
        raise ConfigError(
            f"--until: missing, allowed: a time, since {center} has the key {held[0]}; or first "
            "revoke that"
        )
    now = time.time()
    ends = None if until is None or not held else moment(until, now)
    change = checked_change(
        at=now, action="add", id=center, public_key=public_key, address=address, until=ends
    )
    append_change(config.members, change)
    return current_membership(config)


def revoke_keys(config: CenterConfig, public_key: str | None, center: str | None) -> list[Change]:
    """Revoke one key, or all keys of a member; ``ConfigError`` if there is nothing to revoke."""
    if (public_key is None) == (center is None):
        raise ConfigError("--public-key, --id: exactly one of the two must be given")
    found = current_membership(config)
    if center is None:
        center = holder(found, public_key or "")
    if center is None or center not in found.keys:
        members = ", ".join(name for name in found.keys if name != config.id)
        raise ConfigError(f"found no such member or key, allowed: one of {members or 'nobody'}")
    if center == config.id:
        raise ConfigError(
            f"{center} is this center itself; `abps leave` leaves, `abps keys` changes its key"
        )
    keys = found.keys[center] if public_key is None else (public_key,)
    changes = [
        checked_change(at=time.time(), action="revoke", id=center, public_key=key) for key in keys
    ]
    for change in changes:
        append_change(config.members, change)
    return changes


def ask_to_leave(config: CenterConfig) -> None:
    """Have the running daemon leave."""
    append_change(config.members, checked_change(at=time.time(), action="leave", id=config.id))


def moment(text: str, now: float) -> float:
    """Seconds since 1970 of a span from ``now`` or of a date (UTC unless it says otherwise)."""
    span = _SPAN.match(text)
    if span is not None:
        return now + int(span[1]) * _SECONDS[span[2]]
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None:
        raise ConfigError(
            f"--until: found {text!r}, allowed: a span such as 7d, 12h or 90s, or a date such as "
            "2027-01-31"
        )
    found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if found <= now:
        raise ConfigError(f"--until: found {text!r}, allowed: a time to come")
    return found


def checked_change(**values: Any) -> Change:
    """``ConfigError`` for an id, key or address of the wrong form."""
    try:
        return Change.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "the change"
        option = {"public_key": "--public-key", "id": "--id", "address": "--address"}
        raise ConfigError(f"{option.get(name, name)}: {first['msg']}") from error
