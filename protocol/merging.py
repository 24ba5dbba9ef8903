"""How much each trunk counts in a merge, and which model so far was the best (pure rules).

Paper section 6.4 (best model on validation, patience); that the mean is uniform is stated in
``docs/decisions.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.contract import Policy


def merge_weights(
    policy: Policy, own_size: int, partners: Mapping[str, int | None]
) -> dict[str, float]:
    """Weight of every partner's trunk in the merge; the own weight is what is missing to 1.

    ``partners`` gives the training patients each one claims; none claimed count as one patient.
    Claims above ``size_cap`` count as that many, so that no claim takes over.
    """
    if policy.merge_weights == "uniform":
        return {peer: 1.0 / (len(partners) + 1) for peer in partners}
    sizes = {peer: min(size or 1, policy.size_cap) for peer, size in partners.items()}
    total = sum(sizes.values()) + min(own_size, policy.size_cap)
    return {peer: size / total for peer, size in sizes.items()}


def adopting(weights: Mapping[str, float]) -> dict[str, float]:
    """The same among the partners, and nothing of the own trunk: how a newcomer takes theirs."""
    total = math.fsum(weights.values())
    return {peer: weight / total for peer, weight in weights.items()}


@dataclass(frozen=True)
class Best:
    """The best round so far by the own validation metric; the first of equal ones."""

    round: int = 0
    """0 before the first round."""
    metric: float = float("-inf")
    without_gain: int = 0
    """Rounds since."""

    def after(self, number: int, value: float) -> Best:
        """With one more round."""
        if self.round == 0 or value > self.metric:
            return Best(number, value, 0)
        return Best(self.round, self.metric, self.without_gain + 1)

    def exhausted(self, patience: int | None) -> bool:
        """Whether it is time to stop early."""
        return patience is not None and self.without_gain >= patience
