"""What one center believes of its peers: sparse, in arrays, so that thousands can be ranked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.beliefs import Belief
from sim.engine.stack import Floats, Index


class Beliefs:
    """Beliefs of one center, by the peer's place in the order of ids.

    Who is not in it stands at the prior.
    """

    def __init__(self) -> None:
        self._slot: dict[int, int] = {}
        self._peers: Index = np.empty(4, dtype=np.int64)
        self._counts: Index = np.empty(4, dtype=np.int64)
        self._alpha_beta: Floats = np.empty((4, 2))

    @property
    def peers(self) -> Index:
        """Who is believed anything of, in the order of first acquaintance, ``(k,)``."""
        return self._peers[: len(self._slot)]

    @property
    def counts(self) -> Index:
        """Observations of each, n, ``(k,)``."""
        return self._counts[: len(self._slot)]

    @property
    def means(self) -> Floats:
        """α/(α + β) of each, ``(k,)``."""
        alpha, beta = self._alpha_beta[: len(self._slot)].T
        means: Floats = alpha / (alpha + beta)
        return means

    def __len__(self) -> int:
        return len(self._slot)

    def __contains__(self, peer: int) -> bool:
        return peer in self._slot

    def about(self, peer: int, prior: Belief) -> Belief:
        """The belief about a peer, the prior if there is none yet."""
        slot = self._slot.get(peer)
        return prior if slot is None else self._at(slot)

    def put(self, peer: int, belief: Belief) -> None:
        """Insert or replace."""
        slot = self._slot.setdefault(peer, len(self._slot))
        if slot == self._peers.size:
            grown = 2 * slot
            self._peers = np.resize(self._peers, grown)
            self._counts = np.resize(self._counts, grown)
            self._alpha_beta = np.resize(self._alpha_beta, (grown, 2))
        self._peers[slot] = peer
        self._counts[slot] = belief.n
        self._alpha_beta[slot] = belief.alpha, belief.beta

    def items(self) -> Iterator[tuple[int, Belief]]:
        """Peers in ascending order with the beliefs about them."""
        for peer, slot in sorted(self._slot.items()):
            yield peer, self._at(slot)

    def _at(self, slot: int) -> Belief:
        alpha, beta = self._alpha_beta[slot].tolist()
        return Belief(alpha, beta, int(self._counts[slot]))
