"""Bandwidth as the paper counts it: parameters that travelled, relative to FedAvg in float32.

Every transfer counts once for each direction: an exchange between two centers, and a center that
hears from its server and answers, are two transfers. FedAvg makes 2·n of them a round.
"""

from __future__ import annotations

PAPER_ROUNDS = 50


def fedavg_bytes(centers: int, parameters: int, rounds: int) -> int:
    """What FedAvg moves in so many rounds with so many ``parameters`` in float32."""
    return 2 * centers * parameters * 4 * rounds


def bandwidth_ratio(moved: int, centers: int, parameters: int, rounds: int) -> float:
    """Bytes ``moved`` in ``rounds`` rounds against FedAvg over as many rounds."""
    return moved / fedavg_bytes(centers, parameters, rounds)


def bandwidth_ratio_vs_50(moved: int, centers: int, parameters: int) -> float:
    """Bytes ``moved`` in a whole run against 50 rounds of FedAvg, as the paper's 0.09×."""
    return moved / fedavg_bytes(centers, parameters, PAPER_ROUNDS)
