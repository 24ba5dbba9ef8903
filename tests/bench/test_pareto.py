"""The bench of the Pareto step ends with its figures, and the solver is as good as SLSQP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "pareto.py"


@pytest.mark.slow
def test_the_bench_of_the_pareto_step_ends_with_its_figures() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, "--repeats", "2", "--matrices", "10"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    *human, last = run.stdout.splitlines()
    assert any(line.startswith("fedcare") for line in human)
    found = json.loads(last)
    for objectives in (2, 3):
        ratios = [
            found[f"{kind}_{objectives}_pareto_us"] / found[f"{kind}_{objectives}_weighted_us"]
            for kind in ("mlp", "fedcare")
        ]
        assert found[f"step_ratio_{objectives}"] == pytest.approx(max(ratios), rel=0.01)
    assert found["max_gap_to_slsqp"] <= 1e-8
    assert found["max_kkt_residual"] <= 1e-8
    assert found["solver_ratio_to_slsqp"] > 1
