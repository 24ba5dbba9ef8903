"""The schedule of the bench of what a fleet cannot do without."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("centers", [2, 4, 6, 20, 230])
def test_everybody_has_one_partner_in_a_round_and_meets_everybody(
    centers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    partner_of = runpy.run_path(str(BENCH / "fleet_floor.py"))["partner_of"]
    met: list[set[int]] = [set() for _ in range(centers)]
    for round in range(1, centers):
        partners = [partner_of(number, round, centers) for number in range(centers)]
        assert all(partners[partner] == number for number, partner in enumerate(partners))
        assert all(partner != number for number, partner in enumerate(partners))
        for number, partner in enumerate(partners):
            met[number].add(partner)
    assert all(len(others) == centers - 1 for others in met)
