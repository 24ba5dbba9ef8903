"""The bench of the wire runs as it is documented, with few samples: shape and sanity, no speed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "node_wire.py"
SAMPLES = 30
EXCHANGES = 3


@pytest.mark.slow
def test_the_bench_of_the_wire_ends_with_its_figures() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, "--samples", str(SAMPLES), "--exchanges", str(EXCHANGES)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    *human, last = run.stdout.splitlines()
    assert any("propose → accept" in line for line in human)
    found = json.loads(last)
    assert (found["samples"], found["exchanges"]) == (SAMPLES, EXCHANGES)
    for kind in ("echo", "accept", "reject"):
        times = [found[f"{kind}_{name}_us"] for name in ("p50", "p95", "p99")]
        assert times == sorted(times) and 0 < times[0] < 1e6
    for key, kind in (("rtt_ratio_to_curve_echo", "accept"), ("rtt_ratio_reject", "reject")):
        ratio = found[f"{kind}_p50_us"] / found["echo_p50_us"]
        assert math.isclose(found[key], ratio, rel_tol=0.02)
    # Bytes are no matter of speed: they must be the documented ones, up to a heartbeat or two.
    assert 1 < found["wire_ratio_to_payload"] <= 1.05
    beyond = found["wire_bytes_per_exchange"] - found["wire_bytes_predicted"]
    assert 0 <= beyond < 200
