"""Who is a member, and by which keys: the roster of federation.toml and what was changed since.

Pure: changes in, membership at a moment out. What people change while a center runs is a list that
only grows (``abps_node.members_file``); the roster is where it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from abps_node.config_files import CurveKey, Id, Member, PeerAddress
from protocol.contract import Strict


class Change(Strict):
    """One decision of this center's people."""

    at: float = Field(description="when it was made, seconds since 1970")
    action: Literal["add", "revoke", "leave"]
    id: Id
    public_key: CurveKey | None = None
    """None for ``leave`` alone."""
    address: PeerAddress | None = None
    until: float | None = None
    """Of ``add``: when the keys that the member had before end, seconds since 1970."""


@dataclass(frozen=True)
class Membership:
    """The members at one moment."""

    keys: Mapping[str, tuple[str, ...]]
    """Of each member the keys that count, the newest first."""
    addresses: Mapping[str, str]
    """Where the roster or an ``add`` says that it listens."""
    revoked: frozenset[str]
    """Those that were members once and have no key left."""
    changes_at: float | None
    """When the next key ends by itself, seconds since 1970."""

    def members(self, own: str, own_key: str) -> list[Member]:
        """As a roster: each with its newest key, oneself with the one in use."""
        return [
            Member(
                id=name,
                public_key=own_key if name == own else keys[0],
                address=self.addresses.get(name),
            )
            for name, keys in self.keys.items()
        ]


def membership(roster: Sequence[Member], changes: Sequence[Change], now: float) -> Membership:
    """The roster after all changes, at ``now`` (seconds since 1970).

    An added key comes first among its member's. The keys before it go on until ``until``, without
    one for good; a revoked key counts no more, whatever the roster says, unless it is added again.
    """
    keys = {member.id: [member.public_key] for member in roster}
    addresses = {m.id: m.address for m in roster if m.address is not None}
    ends: dict[str, float] = {}
    for change in changes:
        if change.public_key is None:
            continue
        held = keys.setdefault(change.id, [])
        if change.public_key in held:
            held.remove(change.public_key)
        if change.action == "add":
            if change.until is not None:
                ends.update({old: min(change.until, ends.get(old, change.until)) for old in held})
            ends.pop(change.public_key, None)
            held.insert(0, change.public_key)
            if change.address is not None:
                addresses[change.id] = change.address
    current = {
        name: tuple(key for key in held if ends.get(key, now + 1) > now)
        for name, held in keys.items()
    }
    waiting = [end for name in current for key in current[name] if (end := ends.get(key))]
    return Membership(
        keys={name: held for name, held in current.items() if held},
        addresses={name: place for name, place in addresses.items() if current[name]},
        revoked=frozenset(name for name, held in current.items() if not held),
        changes_at=min(waiting, default=None),
    )


def holder(found: Membership, key: str) -> str | None:
    """The member whose key this is now."""
    return next((name for name, held in found.keys.items() if key in held), None)
