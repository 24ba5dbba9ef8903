"""Trunks that were here before: the own one echoed, an old one of the peer sold as a new one.

A member that gives nothing back can return what it was given, or repeat what it once computed. Both
pass every check of shape and norm, and would be paid for by chance. Equal bytes tell them apart
from honest trunks: a local step moves thousands of floating-point numbers, so two honest ones are
never equal. A copy with one bit changed is not found out; that is left to the credit it earns.

Remembered are hashes of the newest trunks only, and nothing over a restart.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from protocol.errors import TrunkError
from protocol.trunk import digest

OWN_TRUNKS = 64
PEER_TRUNKS = 32
"""Of each peer: a few kB, also where there are hundreds."""


@dataclass
class Provenance:
    """Hashes of the own trunks, and of each peer's with the round that it claimed for them."""

    own: deque[str] = field(default_factory=lambda: deque(maxlen=OWN_TRUNKS))
    theirs: dict[str, dict[str, int]] = field(default_factory=dict)

    def made(self, payload: bytes) -> None:
        """An own local step is done."""
        self.own.append(digest(payload))

    def check(self, peer: str, payload: bytes, claimed_round: int) -> None:
        """Raise ``TrunkError`` for an echo or a replay; remember what is neither.

        The same trunk for the same round is honest: the peer has finished no newer step meanwhile.
        """
        found = digest(payload)
        if found in self.own:
            raise TrunkError("trunk-echo", "found a trunk of this center itself")
        seen = self.theirs.setdefault(peer, {})
        before = seen.setdefault(found, claimed_round)
        if before != claimed_round:
            raise TrunkError(
                "trunk-replay",
                f"found the trunk of round {before} once more, as one of round {claimed_round}",
            )
        seen[found] = seen.pop(found)  # the newest comes last
        if len(seen) > PEER_TRUNKS:
            del seen[next(iter(seen))]
