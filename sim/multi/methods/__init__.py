"""The rows of FedCARE's tables by name; one file per method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from sim.multi.base import AnyMethod
from sim.multi.methods.abps_pareto import AbpsPareto
from sim.multi.methods.abps_weighted import AbpsWeighted
from sim.multi.methods.fedavg import FedAvg
from sim.multi.methods.fedcare import FedCare
from sim.multi.methods.fedprox import FedProx
from sim.multi.methods.fmgda import Fmgda
from sim.multi.methods.fsmgda import Fsmgda
from sim.multi.methods.local_only import LocalOnly
from sim.multi.methods.pafnet import PafNet


@dataclass(frozen=True)
class Entry:
    """How a method is made, and what it is."""

    make: Callable[[], AnyMethod]
    about: str


METHODS: Final[Mapping[str, Entry]] = {
    "local-only": Entry(LocalOnly, "no communication, as many mini-batches as fedcare"),
    "fedavg": Entry(FedAvg, "zero-padded inputs, mean of the models"),
    "fedavg+global-rate": Entry(
        partial(FedAvg, server="global-rate"), "fedavg, but the server's step is η_g long"
    ),
    "fedavg+tune": Entry(partial(FedAvg, tune=True), "fedavg, then fedcare's stage 2"),
    "fedprox": Entry(FedProx, "fedavg with a proximal term"),
    "fmgda": Entry(Fmgda, "zero-padded inputs, min-norm at the server, full gradients"),
    "fsmgda": Entry(Fsmgda, "the same with stochastic gradients"),
    "pafnet": Entry(PafNet, "own projections, masked model, attention among peers (simplified)"),
    "fedcare-b": Entry(partial(FedCare, stage2=False), "common features, min-norm, no stage 2"),
    "fedcare": Entry(FedCare, "the same, then private fine-tuning on all features"),
    "abps+pareto": Entry(AbpsPareto, "the daemons: chosen partners, Pareto step, stage 2"),
    "abps+weighted": Entry(AbpsWeighted, "the same, with the mean gradient in local steps"),
}
