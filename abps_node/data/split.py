"""70 / 15 / 15: which rows train, validate and test.

Without a patient column: per class, by a permutation seeded for this center, cut at round(0.7 n)
and round(0.85 n); it belongs to this file as it stands, a row added changes it. With a patient
column: by a keyed hash of the patient, the same in all centers and after every refresh of the data,
so that one patient's stays never straddle splits, nor centers. See ``docs/decisions.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protocol.randomness import derive_rng

Rows = NDArray[np.intp]
_TRAIN_END: Final = 0.7
_VALIDATION_END: Final = 0.85
_LEAST_PER_CLASS: Final = 3
"""With fewer rows in a class it cannot be dealt to three splits, so classes are not kept apart."""


@dataclass(frozen=True)
class SplitRows:
    """Row numbers of each split, ascending; every row stands in exactly one."""

    train: Rows
    validation: Rows
    test: Rows


def split_by_class(labels: NDArray[np.float64], seed: int, center_id: str) -> SplitRows:
    """Stratified by the 0/1 label, unstratified where a class has fewer than three rows."""
    classes = [np.flatnonzero(labels == label) for label in (0.0, 1.0)]
    if min(rows.size for rows in classes) < _LEAST_PER_CLASS:
        classes = [np.arange(labels.size)]
    # Python's generator, since it promises the same numbers in every version: a split that an
    # upgrade reshuffled would move test patients into training.
    rng = derive_rng(seed, center_id, "split")
    parts: list[list[Rows]] = [[], [], []]
    for rows in classes:
        order = list(rows)
        rng.shuffle(order)
        first, second = round(_TRAIN_END * rows.size), round(_VALIDATION_END * rows.size)
        for part, chosen in zip(
            parts, (order[:first], order[first:second], order[second:]), strict=True
        ):
            part.append(np.array(chosen, dtype=np.intp))
    train, validation, test = (np.sort(np.concatenate(part)) for part in parts)
    return SplitRows(train, validation, test)


def split_by_group(groups: Iterable[str], seed: int) -> SplitRows:
    """By patient: below 0.7 of the keyed hash train, below 0.85 validation, else test."""
    named = list(groups)
    share_of = {group: group_share(group, seed) for group in set(named)}
    shares = np.array([share_of[group] for group in named], dtype=np.float64)
    part = np.searchsorted([_TRAIN_END, _VALIDATION_END], shares, side="right")
    train, validation, test = (np.flatnonzero(part == number) for number in range(3))
    return SplitRows(train, validation, test)


def group_share(group: str, seed: int) -> float:
    """Keyed hash of a patient identifier as a number in [0, 1)."""
    key = seed.to_bytes(8, "big")
    digest = hashlib.blake2b(group.encode(), digest_size=8, key=key).digest()
    # 53 bits, so that the division is exact and can never round up to 1.
    return float((int.from_bytes(digest, "big") >> 11) / 2**53)
