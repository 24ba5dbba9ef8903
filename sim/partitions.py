"""Which center a row belongs to: by a column, by care unit and window, or drawn.

Every function gives one name per row. Drawn partitions deal *patients*, never single rows, so that
all stays of a patient are in one center. In natural ones a patient may have been in two centers;
the split of a patient is a hash that is the same everywhere (``abps_node.data.split``), so that no
center tests on whom another trained with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from abps_node.errors import ConfigError
from protocol.randomness import derive_rng
from sim.division import LeftOut

Names = NDArray[np.object_]
Flags = NDArray[np.bool_]


def by_unit_and_window(units: Sequence[str], years: NDArray[np.int64], width: int) -> Names:
    """Care unit × window of ``width`` years (paper section 6.1): ``micu-2110-2111``.

    Windows start at multiples of ``width``, so that they do not depend on who is in the data.
    """
    starts = years // width * width
    return np.array(
        [
            f"{unit}-{start}" if width == 1 else f"{unit}-{start}-{start + width - 1}"
            for unit, start in zip(units, starts.tolist(), strict=True)
        ],
        dtype=object,
    )


def dirichlet(
    labels: NDArray[np.float64], patients: Sequence[str], centers: int, alpha: float, seed: int
) -> Names:
    """Label skew (Hsu, Qi and Brown 2019, arXiv 1909.06335): a rate of its own for each center.

    Centers have equally many patients. Each draws its share of positive patients from
    Dirichlet(α · overall shares), with two classes Beta(α p, α (1 − p)), and takes them from what
    is left; when one class has run out the other fills the place. A patient is positive if any of
    the rows is.
    """
    distinct, codes = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    _refuse_impossible(distinct.size, centers)
    positive = np.zeros(distinct.size, dtype=bool)
    np.logical_or.at(positive, codes, labels == 1)
    rng = derive_rng(seed, "partition", "dirichlet", centers)
    pools = [list(np.flatnonzero(positive == wanted)) for wanted in (False, True)]
    for pool in pools:
        rng.shuffle(pool)
    rate = float(positive.mean())
    of_patient = np.empty(distinct.size, dtype=np.int64)
    for center, size in enumerate(_equal_sizes(distinct.size, centers)):
        share = rng.betavariate(alpha * rate, alpha * (1 - rate)) if 0 < rate < 1 else rate
        negatives, positives = pools
        most, least = min(size, len(positives)), max(0, size - len(negatives))
        wanted = min(max(round(share * size), least), most)
        for pool, count in ((positives, wanted), (negatives, size - wanted)):
            of_patient[pool[len(pool) - count :]] = center
            del pool[len(pool) - count :]
    return _numbered("dirichlet", of_patient[codes], centers)


def iid(patients: Sequence[str], centers: int, seed: int) -> Names:
    """Patients dealt evenly at random: centers that differ by chance alone."""
    distinct, codes = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    _refuse_impossible(distinct.size, centers)
    order = list(range(distinct.size))
    derive_rng(seed, "partition", "iid", centers).shuffle(order)
    of_patient = np.empty(distinct.size, dtype=np.int64)
    of_patient[order] = np.repeat(np.arange(centers), _equal_sizes(distinct.size, centers))
    return _numbered("iid", of_patient[codes], centers)


def largest(names: Names, count: int) -> tuple[Flags, tuple[LeftOut, ...]]:
    """Rows of the ``count`` largest centers, and who is left out; of equals the first by name."""
    distinct, codes, sizes = np.unique(names.astype(str), return_inverse=True, return_counts=True)
    order = np.lexsort((distinct, -sizes))
    reason = f"not among the {count} largest"
    left_out = tuple(
        LeftOut(str(distinct[place]), int(sizes[place]), "not-largest", reason)
        for place in sorted(order[count:])
    )
    return np.isin(codes, order[:count]), left_out


def _equal_sizes(patients: int, centers: int) -> list[int]:
    """Sizes that differ by one at most."""
    small, more = divmod(patients, centers)
    return [small + (center < more) for center in range(centers)]


def _numbered(word: str, centers: NDArray[np.int64], count: int) -> Names:
    digits = len(str(count))
    return np.array([f"{word}-{center + 1:0{digits}d}" for center in centers], dtype=object)


def _refuse_impossible(patients: int, centers: int) -> None:
    if centers > patients:
        raise ConfigError(f"centers: found {centers}, allowed: at most one per patient, {patients}")
