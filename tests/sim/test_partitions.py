"""Rows to centers: every patient in one center, the same draw for the same seed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.errors import ConfigError
from sim.division import LeftOut
from sim.partitions import Names, by_unit_and_window, dirichlet, iid, largest


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, list[str], int]:
    """Labels and patients of up to 60 rows, and a number of centers that can be filled."""
    patients = draw(st.lists(st.integers(0, 25).map(str), min_size=1, max_size=60))
    labels = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(patients), max_size=60))
    centers = draw(st.integers(1, len(set(patients))))
    return np.array(labels[: len(patients)]), patients, centers


def centers_of_patients(names: Names, patients: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, patient in zip(names, patients, strict=True):
        found[patient].add(name)
    return found


@given(rows(), st.floats(0.01, 100), st.integers(0, 2**40))
def test_drawn_centers_share_patients_out_evenly(
    drawn: tuple[np.ndarray, list[str], int], alpha: float, seed: int
) -> None:
    labels, patients, centers = drawn
    for names in (
        dirichlet(labels, patients, centers, alpha, seed),
        iid(patients, centers, seed),
    ):
        of_patient = centers_of_patients(names, patients)
        assert all(len(found) == 1 for found in of_patient.values())
        sizes = defaultdict(int)
        for (center,) in of_patient.values():
            sizes[center] += 1
        assert len(sizes) == centers
        assert max(sizes.values()) - min(sizes.values()) <= 1


def test_the_same_seed_draws_the_same_and_another_something_else() -> None:
    labels, patients = np.arange(200) % 3 == 0, [str(row) for row in range(200)]
    for draw in (
        lambda seed: dirichlet(labels.astype(float), patients, 8, 0.5, seed).tolist(),
        lambda seed: iid(patients, 8, seed).tolist(),
    ):
        assert draw(1) == draw(1)
        assert draw(1) != draw(2)


def rates(alpha: float) -> np.ndarray:
    labels = (np.arange(20_000) % 5 == 0).astype(float)
    names = dirichlet(labels, [str(row) for row in range(20_000)], 100, alpha, seed=3)
    return np.array([labels[names == name].mean() for name in sorted(set(names))])


def test_alpha_says_how_much_the_rates_differ() -> None:
    assert rates(1e6).std() < 0.005
    assert rates(5.0).std() == pytest.approx((0.2 * 0.8 / 6) ** 0.5, rel=0.3)  # of Beta(1, 4)
    assert ((rates(0.01) < 0.01) | (rates(0.01) > 0.99)).mean() > 0.9


def test_more_centers_than_patients_are_refused() -> None:
    with pytest.raises(ConfigError, match="centers: found 3, allowed: at most one per patient, 2"):
        iid(["a", "b", "a"], 3, 0)


def test_windows_do_not_depend_on_who_is_in_the_data() -> None:
    years = np.array([2110, 2111, 2112, 2191])
    names = by_unit_and_window(["micu", "micu", "ccu", "micu"], years, 2)
    assert names.tolist() == ["micu-2110-2111", "micu-2110-2111", "ccu-2112-2113", "micu-2190-2191"]
    assert by_unit_and_window(["ccu"], np.array([2111]), 1).tolist() == ["ccu-2111"]


def test_the_largest_are_kept_and_the_others_named() -> None:
    names = np.array([*"bbbaaacd"], dtype=object)
    keep, left_out = largest(names, 1)
    assert names[keep].tolist() == [*"aaa"]  # as large as b, and before it
    why = ("not-largest", "not among the 1 largest")
    assert left_out == (LeftOut("b", 3, *why), LeftOut("c", 1, *why), LeftOut("d", 1, *why))
    assert largest(names, 9)[1] == ()
