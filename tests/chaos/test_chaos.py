"""A short campaign of random faults; ``make chaos`` runs the long one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.harness import WEIGHTS, Chaos, care_units


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_happens_to_five_centers(tmp_path: Path) -> None:
    seed = time.time_ns() % 10_000
    again = f"--centers 5 --faults 25 --rounds 30 --every-s 0.4 --seed {seed}"
    print(f"the same again: python -m tests.chaos.campaign {again}")
    with Chaos(tmp_path / "f", centers=5, rounds=30, seed=seed, linger_s=20.0) as chaos:
        chaos.wait_for_round(1)
        chaos.run(faults=25, every_s=0.4)
        chaos.finish(wait_s=300)
        figures = chaos.check()
    print(figures, *chaos.log, sep="\n")
    assert sum(figures["faults"].values()) == 25
    assert figures["rounds_with_partners"] > 0


def test_care_units_are_cut_until_there_are_enough() -> None:
    whole = sum(table.num_rows for table in care_units(7).values())
    twelve = care_units(12)
    assert len(twelve) == 12
    assert sum(table.num_rows for table in twelve.values()) == whole
    assert len(care_units(5)) == 5
    assert min(table.num_rows for table in twelve.values()) > 100


def test_every_kind_of_fault_has_its_method() -> None:
    assert all(callable(getattr(Chaos, f"_{kind}")) for kind in WEIGHTS)
