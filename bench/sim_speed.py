"""How fast the simulator trains, what a whole run costs beside it, and whether memory stays flat.

Prints a table and, as its last line, one JSON object:

- ``ratio_to_loop``: seconds per round of a sequential PyTorch loop (one ``nn.Sequential`` and one
  ``torch.optim.Adam`` per center, batches by index, no DataLoader) over those of the batched
  engine, both alternating in this process, the best of several rounds each.
- ``cpu_ratio_to_loop``: the same in processor seconds; on a busy machine the steadier figure.
- ``run_to_training``: a whole ABPS-X run (credit, evaluation, early stop) over its training.
- ``rss_growth_mib_per_100_rounds``: of a soak of base ABPS, in its second half.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_centers import FEATURES, contract_of, made_centers, seeds_of
from torch import nn

from sim.engine import BatchedEngine, SequentialEngine
from sim.federation import SimCenter
from sim.methods.abps import Abps
from sim.stopping import EarlyStop

CENTERS = 230


def main() -> None:
    """Run the three parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds timed of each engine")
    parser.add_argument("--run-rounds", type=int, default=100, help="most rounds of the ABPS-X run")
    parser.add_argument("--soak-rounds", type=int, default=200, help="rounds of the soak")
    options = parser.parse_args()
    rows = np.random.default_rng(1).integers(260, 361, CENTERS)
    result: dict[str, Any] = {"centers": CENTERS, "features": FEATURES, "cores": os.cpu_count()}
    result |= ratios(rows, options.rounds)
    result |= whole_run(rows, options.run_rounds)
    result |= soak(rows, options.soak_rounds)
    print(json.dumps(result))


def ratios(rows: np.ndarray, rounds: int) -> dict[str, Any]:
    """Seconds per training round of all contestants, alternating; the best of each counts."""
    contract = contract_of({"preset": "abps"})
    centers = made_centers(contract, rows)
    seeds = seeds_of(centers)
    contestants: dict[str, Callable[[int], object]] = {"loop": PlainLoop(centers).round}
    for name, engine in {
        "sequential engine": SequentialEngine(contract, centers, seeds),
        "batched engine, 1 thread": BatchedEngine(contract, centers, seeds, threads=1),
        "batched engine, 2 threads": BatchedEngine(contract, centers, seeds, threads=2),
    }.items():
        stack = engine.start()
        contestants[name] = lambda t, engine=engine, stack=stack: engine.train(stack, t)
    best = {name: (float("inf"), float("inf")) for name in contestants}
    for t in range(1, rounds + 1):
        for name, train in contestants.items():
            wall, cpu = seconds(lambda train=train, t=t: train(t))
            best[name] = min(best[name][0], wall), min(best[name][1], cpu)
    loop = best["loop"]
    for name, (wall, cpu) in best.items():
        print(
            f"{name:28s} {wall * 1e3:8.1f} ms per round {loop[0] / wall:6.2f} ×, "
            f"processor {cpu * 1e3:8.1f} ms {loop[1] / cpu:6.2f} ×"
        )
    batched = [value for name, value in best.items() if name.startswith("batched")]
    return {
        "ratio_to_loop": round(loop[0] / min(wall for wall, _ in batched), 2),
        "cpu_ratio_to_loop": round(loop[1] / min(cpu for _, cpu in batched), 2),
        "seconds_per_round": {name: round(wall, 4) for name, (wall, _) in best.items()},
    }


class PlainLoop:
    """What one would write without this project, and write well."""

    def __init__(self, centers: list[SimCenter]) -> None:
        self._parts = []
        for center in centers:
            network = nn.Sequential(
                nn.Linear(FEATURES, 128),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(128, 64),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(64, 1),
            )
            optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
            x, y = (torch.from_numpy(part) for part in (center.data.train.x, center.data.train.y))
            self._parts.append((network, optimizer, x, y))

    def round(self, t: int) -> None:
        """Two epochs of every center."""
        loss_of = nn.functional.binary_cross_entropy_with_logits
        for network, optimizer, x, y in self._parts:
            for _ in range(2):
                for index in torch.randperm(len(y)).split(128):
                    optimizer.zero_grad()
                    loss_of(network(x[index]).squeeze(-1), y[index]).backward()
                    optimizer.step()


def whole_run(rows: np.ndarray, rounds: int) -> dict[str, Any]:
    """ABPS-X with everything, over the training in it."""
    contract = contract_of({"preset": "abps-x", "rounds": rounds})
    centers = made_centers(contract, rows)
    engine = TimedEngine(contract, centers, seeds_of(centers), threads=1)
    policy = contract.policy
    stop = EarlyStop("network", policy.patience, engine.metrics, policy.utility)
    began = time.perf_counter()
    method = Abps()
    state = method.init(engine, 11)
    t = 0
    while t < policy.rounds and not stop.over:
        t += 1
        stats = method.round(engine, state, t)
        assert stats.validation is not None
        stop.judge(t, stats.validation, method.models(engine, state))
    scores = engine.predict(stop.chosen(method.models(engine, state)), "test")
    whole = time.perf_counter() - began
    print(
        f"ABPS-X, {t} rounds: {whole:.1f} s, training {engine.trained:.1f} s, "
        f"{scores.logits.size} test rows"
    )
    return {"run_to_training": round(whole / engine.trained, 3), "run_rounds": t}


class TimedEngine(BatchedEngine):
    """Adds up the seconds of training."""

    trained = 0.0

    def train(self, *arguments: Any, **options: Any) -> Any:
        """As ever, timed."""
        began = time.perf_counter()
        losses = super().train(*arguments, **options)
        self.trained += time.perf_counter() - began
        return losses


def soak(rows: np.ndarray, rounds: int) -> dict[str, Any]:
    """Memory of base ABPS from the middle of a long run to its end."""
    contract = contract_of({"preset": "abps", "rounds": rounds})
    centers = made_centers(contract, rows // 8)
    engine = BatchedEngine(contract, centers, seeds_of(centers))
    method = Abps()
    state = method.init(engine, 11)
    middle = 0
    for t in range(1, rounds + 1):
        method.round(engine, state, t)
        if t == rounds // 2:
            middle = resident_bytes()
    growth = (resident_bytes() - middle) / 2**20 / (rounds - rounds // 2) * 100
    print(f"soak, {rounds} rounds: {growth:+.1f} MiB per 100 rounds in its second half")
    return {"rss_growth_mib_per_100_rounds": round(growth, 2)}


def resident_bytes() -> int:
    """Resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


if __name__ == "__main__":
    main()
