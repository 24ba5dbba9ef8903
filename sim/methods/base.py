"""What every method is: explicit state in, explicit state out, and an account of each round.

A method sees the centers through an engine alone. All arrays stand in the engine's order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.trunk import BYTES_PER_PARAMETER
from sim.engine import Engine, Stack
from sim.engine.stack import Floats, Index


@dataclass(frozen=True)
class Credits:
    """What ABPS measured in one round."""

    choices: int = 0
    """Rankings of candidates, one per center."""
    changed: int = 0
    """Rankings in which the posterior changed who comes first."""
    earned: int = 0
    """Credits given."""
    clipped: int = 0
    """Credits that the clip cut."""
    refused: int = 0
    """Trunks that failed their checks."""


@dataclass(frozen=True)
class RoundStats:
    """The account of one round."""

    t: int
    loss: float
    """Mean training loss per patient, averaged over the centers that trained."""
    bytes: int
    """Parameters that travelled, each way counted, times bytes per parameter."""
    partners: Index
    """Partners of each center, ``(C,)``; 0 for all where there is a server, or nobody."""
    rests: Mapping[str, int] = field(default_factory=dict)
    """Cause of a rest to the centers that rested; only of methods that choose partners."""
    credits: Credits = Credits()
    validation: Floats | None = None
    """Utility of each center's model on its validation split, where the round measured it."""


@dataclass
class State:
    """What a method keeps from round to round. ``round`` works on it in place."""

    stack: Stack
    seed: int
    active: NDArray[np.bool_]
    """Centers that still take part, ``(C,)``; early stop per center switches them off."""

    @property
    def who(self) -> Index:
        """Rows of the active centers, ascending."""
        return np.flatnonzero(self.active)


S = TypeVar("S", bound=State)


class Method(ABC, Generic[S]):
    """One row of the table. Instances hold hyperparameters only."""

    @abstractmethod
    def init(self, engine: Engine, seed: int) -> S:
        """The state before round 1: everybody at the contract's initial weights."""

    @abstractmethod
    def round(self, engine: Engine, state: S, t: int) -> RoundStats:
        """Run round ``t`` ≥ 1, in place."""

    def models(self, engine: Engine, state: S) -> torch.Tensor:
        """The model that each center would use now, ``(C, P)``; to read, not to write."""
        return state.stack.weights


def begin(engine: Engine) -> tuple[Stack, NDArray[np.bool_]]:
    """The stack before round 1, and everybody active."""
    return engine.start(), np.ones(len(engine.centers), dtype=bool)


def mean_loss(losses: Floats) -> float:
    """Mean over the centers that trained; NaN if none did."""
    return float(np.nanmean(losses)) if not np.isnan(losses).all() else float("nan")


def travelled(trunks: torch.Tensor, engine: Engine) -> torch.Tensor:
    """Trunks as their receivers see them: a copy, rounded where the contract says bfloat16."""
    if engine.contract.policy.wire_dtype == "bfloat16":
        # To nearest, ties to even: what ``protocol.trunk.to_bfloat16`` puts on the wire.
        return trunks.to(torch.bfloat16).to(torch.float32)
    return trunks.clone()


def trunk_bytes(engine: Engine, parameters: int | None = None) -> int:
    """Size of one trunk on the wire (or of so many parameters)."""
    size = engine.model.trunk.size if parameters is None else parameters
    return size * BYTES_PER_PARAMETER[engine.contract.policy.wire_dtype]


def weighted_mean(rows: torch.Tensor, shares: Floats) -> torch.Tensor:
    """Σ shares·rows over ``(C, n)``, summed in double precision, as float32 ``(n,)``."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for part, wide in in_double(rows):
        total.addmv_(wide.T, torch.from_numpy(shares[part]))
    return total.to(torch.float32)


def norms(rows: torch.Tensor) -> Floats:
    """Euclidean norms in double precision, NaN for what is not finite; ``(C,)``."""
    found = torch.empty(rows.shape[0], dtype=torch.float64)
    for part, wide in in_double(rows, 8):  # so few stay in the cache
        torch.linalg.vector_norm(wide, dim=1, out=found[part])
    values: Floats = torch.where(found.isfinite(), found, torch.nan).numpy()
    return values


def in_double(rows: torch.Tensor, at_once: int = 64) -> Iterator[tuple[slice, torch.Tensor]]:
    """``rows`` ``(C, n)`` in double precision, ``at_once`` at once, always in the same memory.

    Ten thousand trunks in double precision are 1.3 GB; and fresh memory for each block would leave
    holes that nothing fits into.
    """
    buffer = torch.empty(min(at_once, rows.shape[0]), rows.shape[1], dtype=torch.float64)
    for first in range(0, rows.shape[0], at_once):
        part = slice(first, min(first + at_once, rows.shape[0]))
        yield part, buffer[: part.stop - first].copy_(rows[part])
