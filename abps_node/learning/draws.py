"""All random choices of one local step: in which order rows come, and which activations drop out.

They derive from (seed, round, purpose) and from nothing else, so that a redo repeats itself; the
daemon and both engines of the simulator draw from here, so that they train alike.

One byte per activation, all bytes of an epoch in one draw: drawn mask by mask, and by
``bernoulli_``, they were up to 40 % of a local step. The raw stream of numpy's bit generators is
promised to be the same in every version.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.randomness import derive_seed

Bytes = NDArray[np.uint8]


def dropped_levels(p: float) -> int:
    """How many of the 256 values of a byte mean «dropped»: p rounded to 1/256, at most 255."""
    return min(round(p * 256), 255)


def survivor_scale(dropped: int) -> float:
    """What surviving activations are multiplied by, so that the mean stays: 1/(1 − p)."""
    return 256 / (256 - dropped)


def mask(draws: Bytes, dropped: int) -> torch.Tensor:
    """0 where a byte says «dropped», else 1/(1 − p); float32 of the shape of ``draws``."""
    # Through numpy and bytes: torch's own comparison and its copy from bool are ten times slower.
    kept = torch.from_numpy(np.greater_equal(draws, dropped).view(np.uint8))
    return kept.to(torch.float32).mul_(survivor_scale(dropped))


class Draws:
    """The draws of one center's local step, epoch by epoch."""

    def __init__(
        self, seed: int, round: int, rows: int, hidden: Sequence[int], dropout: float
    ) -> None:
        """``hidden`` are the widths of the layers that drop out, with probability ``dropout``."""
        self._rows = rows
        self._bytes = rows * sum(hidden) if dropped_levels(dropout) else 0
        self._shuffle = torch.Generator().manual_seed(derive_seed(seed, round, "shuffle"))
        self._dropout = np.random.SFC64(derive_seed(seed, round, "dropout"))

    def epoch(self) -> tuple[torch.Tensor, Bytes]:
        """The next epoch: row numbers in their order ``(rows,)``, and the bytes of all masks.

        The bytes are those of the first hidden layer, ``(rows, width)`` in the order in which rows
        are visited, then those of the next; none at all without dropout.
        """
        order = torch.randperm(self._rows, generator=self._shuffle)
        raw = np.asarray(self._dropout.random_raw((self._bytes + 7) // 8), dtype="<u8")
        return order, raw.view(np.uint8)[: self._bytes]


def by_layer(draws: Bytes, rows: int, hidden: Sequence[int]) -> list[Bytes]:
    """The bytes of an epoch as one array ``(rows, width)`` per hidden layer; none without any."""
    parts: list[Bytes] = []
    end = 0
    for width in hidden if draws.size else ():
        begin, end = end, end + rows * width
        parts.append(draws[begin:end].reshape(rows, width))
    return parts
