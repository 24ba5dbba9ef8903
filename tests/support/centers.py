"""Federations of made-up centers of any sizes, for everything that simulates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from protocol.contract import Contract
from protocol.goal import CardCounts, build_card
from protocol.randomness import derive_seed
from sim.federation import Federation, SimCenter
from tests.support.learning import learning_contract, made_up, made_up_center

SIZES = (3, 97, 35, 1, 33, 32, 64, 130, 31, 96, 20, 5)
"""Training rows, batches being of 32: single rows, last batches full and partial, two buckets."""


def made_up_centers(contract: Contract, sizes: Sequence[int] = SIZES) -> tuple[SimCenter, ...]:
    """One center per size; every fifth has one class in training, every fourth in validation."""
    centers = []
    for number, rows in enumerate(sizes):
        data = made_up_center(contract, seed=10 * number, rows=rows)
        validation = made_up(max(2, rows // 4), 10 * number + 1, one_class=number % 4 == 3)
        train = made_up(rows, 10 * number, one_class=number % 5 == 4)
        counts = CardCounts(rows, int(train.y.sum()), None, 0, ())
        data = replace(
            data,
            train=train,
            validation=validation,
            counts=counts,
            card=build_card(contract, counts),
        )
        centers.append(SimCenter(f"center-{number:02d}", data))
    return tuple(centers)


def made_up_federation(
    policy: dict[str, Any] | None = None, sizes: Sequence[int] = SIZES, **parts: Any
) -> Federation:
    """Made-up centers under a contract with this policy."""
    contract = learning_contract(policy, **parts)
    return Federation(contract, made_up_centers(contract, sizes), "made up")


def made_up_seeds(centers: Sequence[SimCenter], seed: int = 0) -> dict[str, int]:
    """A seed for every center."""
    return {center.id: derive_seed(seed, center.id) for center in centers}
