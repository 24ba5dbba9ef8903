"""How the simulator grows: 20 rounds of base ABPS with 100, 1,000 and 10,000 synthetic centers.

Prints a table and, as its last line, one JSON object: ``centers``, ``seconds_per_center_round``
(one value for each) and ``peak_rss_gib`` of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
from made_centers import contract_of, made_centers, seeds_of

from sim.engine import BatchedEngine
from sim.methods.abps import Abps


def main() -> None:
    """Run one size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--centers", type=int, nargs="+", default=[100, 1_000, 10_000])
    options = parser.parse_args()
    found = {}
    for count in options.centers:
        found[count] = seconds_per_center_round(count, options.rounds)
        print(f"{count:6d} centers: {found[count] * 1e3:7.3f} ms per center and round")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = {
        "centers": list(found),
        "rounds": options.rounds,
        "seconds_per_center_round": [round(value, 6) for value in found.values()],
        "peak_rss_gib": round(peak, 3),
    }
    print(json.dumps(result))


def seconds_per_center_round(count: int, rounds: int) -> float:
    """Training, matching, exchange, credit and beliefs of everybody."""
    contract = contract_of({"preset": "abps", "rounds": rounds})
    # Sizes as in the International Stroke Trial: many small hospitals, few large ones.
    sizes = np.random.default_rng(count).lognormal(3.6, 0.7, count).clip(16, 367)
    centers = made_centers(contract, sizes.astype(int).tolist())
    engine = BatchedEngine(contract, centers, seeds_of(centers), threads=2)
    del centers
    method = Abps()
    state = method.init(engine, 11)
    began = time.perf_counter()
    for t in range(1, rounds + 1):
        method.round(engine, state, t)
    took = time.perf_counter() - began
    engine.close()
    return took / rounds / count


if __name__ == "__main__":
    main()
