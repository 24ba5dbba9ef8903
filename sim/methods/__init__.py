"""Every method by name: what it does, and the policy it runs under.

No method gets settings the others do not: model, local step, splits and seeds come from one
contract. The policy decides what ABPS decides, and for all methods: rounds, private head, wire
type, momentum, patience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.contract import Policy
from protocol.presets import PRESETS
from sim.methods.abps import Abps, RandomMatching
from sim.methods.base import Credits, Method, RoundStats, State
from sim.methods.bnn import BnnFL
from sim.methods.braintorrent import BrainTorrent
from sim.methods.centralized import Centralized
from sim.methods.decefl import DeceFL
from sim.methods.defta import DeFTA
from sim.methods.fedavg import FedAvg
from sim.methods.feddyn import FedDyn
from sim.methods.fedprox import FedProx
from sim.methods.gossip import Gossip
from sim.methods.local_only import LocalOnly
from sim.methods.moon import Moon
from sim.methods.wpfed import WPFed

__all__ = ["METHODS", "Credits", "Entry", "Method", "RoundStats", "State", "find"]


@dataclass(frozen=True)
class Entry:
    """One method as the tables name it."""

    make: Callable[[], Method[Any]]
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Keys of ``protocol.contract.Policy``; a preset and what differs from it."""

    def policy_with(self, changes: Mapping[str, Any]) -> Policy:
        """The policy, some keys changed."""
        return Policy.model_validate({**self.policy, **changes})


METHODS: Final[dict[str, Entry]] = {
    "local-only": Entry(LocalOnly),
    "centralized": Entry(Centralized),
    "fedavg": Entry(FedAvg),
    "fedprox": Entry(FedProx),
    "feddyn": Entry(FedDyn),
    "moon": Entry(Moon),
    "decefl": Entry(DeceFL),
    "defta": Entry(DeFTA),
    "wpfed": Entry(WPFed),
    "bnn+fl": Entry(BnnFL),
    "fedavg+p+q": Entry(FedAvg, {"preset": "abps+p+q"}),
    "fedavg-x": Entry(FedAvg, {"preset": "abps-x"}),
    "gossip": Entry(Gossip),
    "braintorrent": Entry(BrainTorrent),
    **{name: Entry(Abps, {"preset": name}) for name in PRESETS},
    **{
        name.replace("abps", "random-matching", 1): Entry(RandomMatching, {"preset": name})
        for name in PRESETS
    },
}
"""Beside every ABPS row «abps…» stands its control «random-matching…», same policy and bytes."""


def find(name: str) -> Entry:
    """A method by name; raises ``ValueError`` with all names for an unknown one."""
    if name not in METHODS:
        raise ValueError(f"method: found {name!r}, allowed: {', '.join(METHODS)}")
    return METHODS[name]
