"""FedProx on zero-padded inputs: FedAvg with μ/2·‖w − w_server‖² in every local loss.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: «Federated Optimization in Heterogeneous Networks»,
MLSys 2020. μ = 0.01, as in the other tables; FedCARE names none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sim.multi.methods.fedavg import FedAvg
from sim.multi.steps import Pull


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg that holds its clients close."""

    mu: float = 0.01

    def pull(self, start: torch.Tensor) -> Pull | None:
        """See ``FedAvg.pull``."""
        return lambda weights: self.mu * (weights - start)
