from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abps_node.data.split import SplitRows, group_share, split_by_class, split_by_group

SEEDS = st.integers(0, 2**63 - 1)
LABELS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=300).map(np.array)


def parts(rows: SplitRows) -> list[np.ndarray]:
    return [rows.train, rows.validation, rows.test]


def assert_partition(rows: SplitRows, n: int) -> None:
    assert sorted(np.concatenate(parts(rows)).tolist()) == list(range(n))
    assert all((np.diff(part) > 0).all() for part in parts(rows))


@given(LABELS, SEEDS)
def test_each_row_falls_into_exactly_one_split_and_classes_are_kept_apart(
    labels: np.ndarray, seed: int
) -> None:
    rows = split_by_class(labels, seed, "north")
    assert_partition(rows, labels.size)
    sizes = [int((labels == label).sum()) for label in (0.0, 1.0)]
    strata = sizes if min(sizes) >= 3 else [labels.size]
    expected = [
        sum(round(0.7 * n) for n in strata),
        sum(round(0.85 * n) - round(0.7 * n) for n in strata),
        sum(n - round(0.85 * n) for n in strata),
    ]
    assert [part.size for part in parts(rows)] == expected
    if min(sizes) >= 3:
        assert int(labels[rows.train].sum()) == round(0.7 * sizes[1])
        assert int(labels[rows.test].sum()) == sizes[1] - round(0.85 * sizes[1])


def test_a_class_split_depends_on_seed_and_center_only() -> None:
    labels = (np.arange(200) % 3 == 0).astype(np.float64)
    first = split_by_class(labels, 7, "north")
    again = split_by_class(labels, 7, "north")
    assert all((a == b).all() for a, b in zip(parts(first), parts(again), strict=True))
    for other in (split_by_class(labels, 8, "north"), split_by_class(labels, 7, "south")):
        assert not np.array_equal(first.train, other.train)


def test_the_permutation_does_not_change_between_versions() -> None:
    """A split that an upgrade reshuffled would move test patients into training."""
    rows = split_by_class(np.array([0.0, 1.0] * 10), 0, "north")
    assert rows.validation.tolist() == [12, 17]
    assert rows.test.tolist() == [7, 8, 16, 19]
    assert group_share("patient-1", 0) == 0.15356686783448947


@given(st.lists(st.text(max_size=4), min_size=1, max_size=100), SEEDS, st.randoms())
def test_a_group_never_straddles_splits_wherever_its_rows_stand(
    groups: list[str], seed: int, random: object
) -> None:
    rows = split_by_group(groups, seed)
    assert_partition(rows, len(groups))
    split_of = {}
    for name, part in zip("abc", parts(rows), strict=True):
        for row in part:
            assert split_of.setdefault(groups[row], name) == name
    # Another center, with some of these patients and in another order, decides the same.
    elsewhere = groups[::-2]
    for name, part in zip("abc", parts(split_by_group(elsewhere, seed)), strict=True):
        for row in part:
            assert split_of[elsewhere[row]] == name


def test_groups_are_dealt_70_15_15_and_by_seed() -> None:
    groups = [f"patient-{number}" for number in range(20_000)]
    rows = split_by_group(groups, 3)
    shares = [part.size / len(groups) for part in parts(rows)]
    np.testing.assert_allclose(shares, [0.7, 0.15, 0.15], atol=0.01)
    assert not np.array_equal(rows.train, split_by_group(groups, 4).train)
    assert Counter(0 <= group_share(group, 3) < 1 for group in groups) == {True: 20_000}
