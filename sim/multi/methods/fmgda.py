"""FMGDA: FSMGDA whose clients take every local step on all of their rows.

Yang, Liu, Liu, Dong, Momma: «Federated Multi-Objective Learning», NeurIPS 2023. FedCARE reports its
collapse on length of stay and blames the scales of the losses; ``normalization`` is the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.multi.methods.fsmgda import Fsmgda


@dataclass(frozen=True)
class Fmgda(Fsmgda):
    """Min-norm combination at the server, full gradients at the clients."""

    full: bool = True
