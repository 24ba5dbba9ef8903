"""Made-up centers in the shape of the paper's: what the benchmarks of the simulator run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abps_node.data import CenterData, DataReport, Encoder, Split, SplitCounts
from abps_node.data.encode import Scale
from protocol.contract import Contract
from protocol.goal import CardCounts, build_card
from protocol.randomness import derive_seed
from sim.federation import SimCenter

FEATURES = 60


def contract_of(policy: dict[str, Any]) -> Contract:
    """60 inputs, a third of them binary and on the enriched card, under this policy."""
    kinds = ["binary" if number < 12 else "continuous" for number in range(FEATURES)]
    features = [{"name": f"x{number}", "kind": kind} for number, kind in enumerate(kinds)]
    card = {"features": [f"x{number}" for number in range(12)]}
    data = {"label": "y", "features": features, "card": card}
    return Contract.model_validate({"name": "bench", "data": data, "policy": policy})


def made_center(contract: Contract, number: int, train: int, held_out: int) -> SimCenter:
    """One center with so many training rows, and rows of validation and test alike."""
    rng = np.random.default_rng([1, number])
    shared = np.random.default_rng(2).normal(size=FEATURES)
    weights = (shared + 0.5 * rng.normal(size=FEATURES)) * 2 / FEATURES**0.5
    rate = rng.uniform(0.05, 0.5, 12)

    def split(rows: int) -> Split:
        x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
        x[:, :12] = rng.random((rows, 12)) < rate
        y = x @ weights - 2.0 + rng.logistic(size=rows) > 0
        return Split(x, y.astype(np.float32))

    parts = [split(train), split(held_out), split(held_out)]
    counts = [SplitCounts(len(part.y), int(part.y.sum())) for part in parts]
    report = DataReport(
        rows=train + 2 * held_out,
        positives=sum(count.positives for count in counts),
        train=counts[0],
        validation=counts[1],
        test=counts[2],
        inputs=FEATURES,
        missing={},
        unknown_levels={},
        constant=(),
        groups=None,
        dated=None,
        ignored=(),
    )
    prevalence = tuple((int(parts[0].x[:, n].sum()), train) for n in range(12))
    told = CardCounts(train, counts[0].positives, None, 0, prevalence)
    encoder = Encoder(tuple(contract.data.features), (Scale(),) * FEATURES)
    card = build_card(contract, told)
    data = CenterData(*parts, card=card, counts=told, report=report, encoder=encoder)
    return SimCenter(f"center-{number:05d}", data)


def made_centers(contract: Contract, train: Sequence[int]) -> list[SimCenter]:
    """One center per number of training rows; 70/15/15."""
    return [
        made_center(contract, number, int(rows), max(2, round(rows * 15 / 70)))
        for number, rows in enumerate(train)
    ]


def seeds_of(centers: Sequence[SimCenter], seed: int = 11) -> dict[str, int]:
    """Each center's own seed."""
    return {center.id: derive_seed(seed, center.id) for center in centers}
