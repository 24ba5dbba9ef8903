"""What a Pareto step costs over a weighted one with the same heads, and the solver over SLSQP.

Prints a table and, as its last line, one JSON object:

- ``step_ratio_2``, ``step_ratio_3``: processor seconds per mini-batch (draws, forward, exact
  gradients of two or three objectives, min-norm point, Adam) over those of ``local_step =
  "weighted"``, both alternating in this process, one thread; the best of several repetitions each,
  the worse of the two kinds of trunk.
- ``solver_ratio_to_slsqp``: seconds of SciPy's SLSQP (ftol 1e-12, with its gradient) over those of
  ``min_norm`` on the same Gram matrices; above 1 ours is faster. The least of all sizes.
- ``max_gap_to_slsqp``: the most by which ours is worse, in units of the trace (one-sided).
- ``max_kkt_residual``: of ours, in units of the trace.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from abps_node.aims import Aims, LocalStep, Objective
from abps_node.data.encode import Encoder
from abps_node.data.objectives import NO_GROUP, ObjectiveData, ObjectiveSplit
from abps_node.learning.adam import Adam
from abps_node.learning.min_norm import FloatArray, kkt_residual, min_norm
from abps_node.learning.objective_losses import losses_of, rows_of
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.objective_step import objective_step
from protocol.contract import Contract

ROWS = 1280
BATCH = 128
COMMON, PRIVATE = 20, 9
"""As in the paper's Diabetes 130 federation."""
OBJECTIVES = (
    Objective(name="early", kind="bce", column="early"),
    Objective(name="stay", kind="huber-log", column="stay"),
    Objective(name="back", kind="bce", column="back"),
)
SIZES = (2, 3, 4, 6, 8)


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="epochs timed of each step")
    parser.add_argument("--matrices", type=int, default=200, help="Gram matrices per size and kind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"rows": ROWS, "batch": BATCH}
    result |= steps(options.repeats)
    result |= solver(options.matrices)
    print(json.dumps(result))


def steps(repeats: int) -> dict[str, Any]:
    """Seconds per mini-batch of both steps, for both trunks, with two and three objectives."""
    found: dict[str, Any] = {}
    for count in (2, 3):
        ratios = {}
        for kind in ("mlp", "fedcare"):
            weighted, pareto = (one_epoch(kind, count, step) for step in ("weighted", "pareto"))
            best = {"weighted": float("inf"), "pareto": float("inf")}
            for _ in range(repeats):
                for name, run in (("weighted", weighted), ("pareto", pareto)):
                    best[name] = min(best[name], seconds(run) / (ROWS / BATCH))
            ratios[kind] = best["pareto"] / best["weighted"]
            print(
                f"{kind:8s} {count} objectives: weighted {best['weighted'] * 1e6:7.0f} µs, pareto "
                f"{best['pareto'] * 1e6:7.0f} µs per mini-batch, ratio {ratios[kind]:.2f}"
            )
            found |= {
                f"{kind}_{count}_{name}_us": round(1e6 * value, 1) for name, value in best.items()
            }
        found[f"step_ratio_{count}"] = round(max(ratios.values()), 3)
    return found


def one_epoch(kind: str, count: int, step: LocalStep) -> Callable[[], object]:
    """A local step of one epoch on made rows."""
    contract = contract_of(kind)
    objectives = OBJECTIVES[:count]
    rng = np.random.default_rng(1)
    y = np.stack([outcome(rng, objective) for objective in objectives], axis=1)
    private = rng.normal(size=(ROWS, PRIVATE)).astype(np.float32)
    split = ObjectiveSplit(private, y, np.full(y.shape, NO_GROUP))
    data = ObjectiveData(split, split, split, Encoder((), ()), ((),) * count, (), ())
    aims = Aims(objectives, local_step=step)
    x = torch.from_numpy(rng.normal(size=(ROWS, COMMON)).astype(np.float32))
    rows = rows_of(aims, x, split, data, with_private=True)
    net = ObjectiveNet.of(contract, PRIVATE, [objective.name for objective in objectives])
    weights, adam, losses = net.initial(1), Adam.fresh(net.size), losses_of(aims, split)
    return lambda: objective_step(
        net, losses, weights, adam, rows, contract.training, aims, 1, 1, stand=False
    )


def outcome(rng: np.random.Generator, objective: Objective) -> np.ndarray[Any, Any]:
    """Made outcomes."""
    values = rng.random(ROWS) < 0.3 if objective.binary else rng.gamma(2.0, 3.0, ROWS)
    return values.astype(np.float32)


def contract_of(kind: str) -> Contract:
    """The paper's sizes, one epoch."""
    features = [{"name": f"x{number}", "kind": "continuous"} for number in range(COMMON)]
    return Contract.model_validate(
        {
            "name": "bench",
            "data": {"label": "y", "features": features},
            "model": {"kind": kind},
            "training": {"epochs": 1, "batch_size": BATCH},
            "policy": {"head_layers": 1 if kind == "mlp" else 3},
        }
    )


def solver(matrices: int) -> dict[str, Any]:
    """Speed and optimality beside SLSQP."""
    gap, residual = 0.0, 0.0
    ratios = {}
    for size in SIZES:
        grams = list(gram_matrices(size, matrices))
        ours, theirs = [], []
        ours_s = seconds(lambda grams=grams, ours=ours: ours.extend(map(min_norm, grams)))  # type: ignore[misc]
        theirs_s = seconds(lambda grams=grams, theirs=theirs: theirs.extend(map(slsqp, grams)))  # type: ignore[misc]
        for gram, found, weights in zip(grams, ours, theirs, strict=True):
            trace = max(float(np.trace(gram)), 1e-300)
            gap = max(gap, (found.norm2 - float(weights @ gram @ weights)) / trace)
            residual = max(residual, kkt_residual(gram, found.weights))
        ratios[size] = theirs_s / ours_s
        print(
            f"{size} gradients: {ours_s / len(grams) * 1e6:7.1f} µs, SLSQP "
            f"{theirs_s / len(grams) * 1e6:7.1f} µs, {ratios[size]:6.1f} × faster"
        )
    return {
        "solver_ratio_to_slsqp": round(min(ratios.values()), 2),
        "solver_ratios": {str(size): round(ratio, 1) for size, ratio in ratios.items()},
        "max_gap_to_slsqp": gap,
        "max_kkt_residual": residual,
    }


def gram_matrices(size: int, count: int) -> Iterator[FloatArray]:
    """Ordinary, wildly scaled, parallel, opposite and partly zero gradients."""
    rng = np.random.default_rng(size)
    for _ in range(count):
        rows = rng.normal(size=(size, 50)) + rng.uniform(0, 2) * rng.normal(size=50)
        yield rows @ rows.T
        scaled = rows * 10.0 ** rng.uniform(-4, 4, (size, 1))
        yield scaled @ scaled.T
        for factor in (2.0, -2.0, 0.0):
            degenerate = rows.copy()
            degenerate[-1] = factor * rows[0]
            yield degenerate @ degenerate.T


def slsqp(gram: FloatArray) -> FloatArray:
    """What the paper uses."""
    size = gram.shape[0]
    found = minimize(
        lambda mu: mu @ gram @ mu,
        np.full(size, 1.0 / size),
        jac=lambda mu: 2.0 * gram @ mu,
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda mu: mu.sum() - 1.0, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    weights = np.clip(found.x, 0.0, None)
    return np.asarray(weights / weights.sum())


def seconds(job: Callable[[], object]) -> float:
    """Processor seconds: all runs in this one thread, and a busy machine says little else."""
    begun = time.process_time()
    job()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
