"""What the engines work on: everybody's parameters as rows of one tensor, patients as one table.

Rows and centers stand in the engine's order (``Engine.centers``), everywhere and always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from abps_node.data import Split

SplitName = Literal["train", "validation", "test"]
Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass
class Stack:
    """The parameters and optimizer states of C centers. Training and merging work in place."""

    weights: torch.Tensor
    """Float32 ``(C, Q)``: flat parameters, Q = ``Mlp.size`` unless an objective says otherwise."""
    exp_avg: torch.Tensor
    """Adam's first moment, ``(C, Q)``: kept from round to round, never exchanged."""
    exp_avg_sq: torch.Tensor
    """Adam's second moment, ``(C, Q)``."""
    steps: torch.Tensor
    """Optimizer steps of each center so far, int64 ``(C,)``."""

    @classmethod
    def start(cls, parameters: torch.Tensor, centers: int) -> Stack:
        """All centers at the same parameters ``(Q,)``, no optimizer step done."""
        weights = parameters.expand(centers, -1).clone()
        return cls(
            weights,
            torch.zeros_like(weights),
            torch.zeros_like(weights),
            torch.zeros(centers, dtype=torch.int64),
        )

    def clone(self) -> Stack:
        """A copy that shares no memory."""
        return Stack(
            self.weights.clone(),
            self.exp_avg.clone(),
            self.exp_avg_sq.clone(),
            self.steps.clone(),
        )


@dataclass(frozen=True)
class Table:
    """One split of all centers, one below the other."""

    x: torch.Tensor
    """Float32 ``(N, d)``."""
    y: torch.Tensor
    """Float32 ``(N,)``, 0 and 1."""
    start: Index
    """Row at which each center begins, and N at the end: ``(C + 1,)``."""

    @classmethod
    def below_each_other(cls, splits: Sequence[Split]) -> Table:
        """Copy the splits together."""
        x = torch.from_numpy(np.concatenate([split.x for split in splits]))
        y = torch.from_numpy(np.concatenate([split.y for split in splits]))
        return cls(x, y, offsets([split.y.size for split in splits]))

    @property
    def sizes(self) -> Index:
        """Rows of each center, ``(C,)``."""
        return np.diff(self.start)

    def rows(self, center: int) -> slice:
        """The rows of one center."""
        return slice(int(self.start[center]), int(self.start[center + 1]))

    def of(self, owners: Index) -> tuple[NDArray[np.float32], Index]:
        """Outcomes of these centers, one after the other, and where each begins."""
        y = self.y.numpy()
        if owners.size == self.sizes.size and bool((np.diff(owners) == 1).all()):
            return y, self.start
        sizes = self.sizes[owners]
        start = offsets(sizes)
        places = np.arange(start[-1]) + np.repeat(self.start[owners] - start[:-1], sizes)
        return y[places], start


@dataclass(frozen=True)
class Scores:
    """Predictions for the rows of some centers, one center after the other."""

    logits: NDArray[np.float32]
    """``(n,)``."""
    y: NDArray[np.float32]
    """``(n,)``, 0 and 1."""
    start: Index
    """Where each center begins, and n at the end."""

    def of(self, place: int) -> tuple[Floats, Floats]:
        """Logits and labels of the center at this place, in double precision."""
        rows = slice(int(self.start[place]), int(self.start[place + 1]))
        return self.logits[rows].astype(np.float64), self.y[rows].astype(np.float64)


def offsets(sizes: Sequence[int] | Index) -> Index:
    """Running sum with a zero in front."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
