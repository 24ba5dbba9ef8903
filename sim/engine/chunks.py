"""Which centers are computed together: neighbors in size, as many as stay in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.engine.stack import Index


@dataclass(frozen=True)
class Chunk:
    """Items that share one batched computation: places ``first`` to ``end`` of an order."""

    first: int
    end: int
    width: int
    """Rows of the largest; the others are padded to it."""

    @property
    def places(self) -> slice:
        """As a slice."""
        return slice(self.first, self.end)

    def __len__(self) -> int:
        return self.end - self.first


def chunks(
    sizes: Index, most: Callable[[int], int], together: Callable[[int], int] = lambda size: 0
) -> list[Chunk]:
    """Cut an order with the given ``sizes`` into runs of items that are alike.

    ``most(size)`` bounds the length of a run with items of that size; items with different
    ``together(size)`` are kept apart. Padding stays below a quarter, but for tiny items.
    """
    found: list[Chunk] = []
    first = narrow = wide = 0
    for place, size in enumerate(sizes.tolist()):
        lower, upper = min(narrow, size), max(wide, size)
        fits = (
            place > first
            and place - first < most(upper)
            and upper <= max(1.25 * lower, lower + 8)
            and together(size) == together(int(sizes[first]))
        )
        if fits:
            narrow, wide = lower, upper
            continue
        if place > first:
            found.append(Chunk(first, place, wide))
        first, narrow, wide = place, size, size
    if sizes.size:
        found.append(Chunk(first, sizes.size, wide))
    return found


def by_size(sizes: Index) -> Index:
    """An order in which neighbors are alike; ties keep their order."""
    return np.argsort(sizes, kind="stable")
