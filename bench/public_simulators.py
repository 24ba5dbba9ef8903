"""This project's simulator and public ones on the same work, in the same run: FedAvg.

Every contestant is a process of its own, one after another, on the same patients from the same
initial weights; which public simulators are not installed is said, and they are left out. Prints a
table and, as its last line, one JSON object:

- ``cpu_ratio``, ``wall_ratio``: a public simulator's seconds per round over those of this one, the
  quickest round of each counts, the first (warm-up) never. Processor seconds include all processes
  that a contestant started; on a busy machine look at them.
- ``cpu_ratio_whole``, ``wall_ratio_whole``: from the start of the process to the end of the last
  round, imports and worker processes included.
- ``auroc``: of the last global model on the test rows of all centers, and ``auroc_at_start`` of
  the initial weights: whether each one really trained.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from made_centers import FEATURES, contract_of, made_centers
from public_work import Work
from sklearn.metrics import roc_auc_score

from abps_node.learning.model import Mlp

OURS = "ours"
PUBLIC = {"fluke": ("fluke",), "flower": ("flwr", "ray")}
"""Contestants and the modules that each needs."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "WANDB_MODE": "disabled",
    "CUDA_VISIBLE_DEVICES": "",
}


def main() -> None:
    """All contestants, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--centers", type=int, default=230)
    parser.add_argument("--rounds", type=int, default=4, help="of each; the first is the warm-up")
    parser.add_argument("--threads", type=int, default=2, help="of this project's engine")
    parser.add_argument("--only", nargs="*", choices=PUBLIC, help="these public ones; default: all")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each contestant")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds: found {options.rounds}, allowed: 2 or more")
    wanted = PUBLIC if options.only is None else options.only
    result: dict[str, Any] = {
        "centers": options.centers,
        "features": FEATURES,
        "rounds": options.rounds,
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "left_out": {name: why for name in wanted if (why := missing(name)) is not None},
    }
    with tempfile.TemporaryDirectory(prefix="abps-public-") as folder:
        labels, start = prepare(Path(folder), options)
        result |= {"auroc_at_start": start, "contestants": {}}
        for name in [OURS, *(name for name in wanted if name not in result["left_out"])]:
            outcome = compete(name, Path(folder), labels, options.timeout)
            where = "left_out" if isinstance(outcome, str) else "contestants"
            result[where][name] = outcome
    if OURS not in result["contestants"]:
        sys.exit(result["left_out"][OURS])
    add_ratios(result["contestants"])
    tell(result)
    print(json.dumps(result))


def missing(name: str) -> str | None:
    """Why a public simulator cannot take part, if it cannot."""
    lacking = [each for each in PUBLIC[name] if importlib.util.find_spec(each) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else None


def prepare(folder: Path, options: argparse.Namespace) -> tuple[np.ndarray, float]:
    """Write the work; returns the labels of the test rows and the AUROC before any training."""
    contract = contract_of({"preset": "abps", "rounds": options.rounds})
    rows = np.random.default_rng(1).integers(260, 361, options.centers)
    data = [center.data for center in made_centers(contract, rows)]
    np.savez(
        folder / "work.npz",
        x=np.concatenate([each.train.x for each in data]),
        y=np.concatenate([each.train.y for each in data])[:, np.newaxis],
        start=np.concatenate([[0], np.cumsum(rows)]),
        test=np.concatenate([each.test.x for each in data]),
        initial=Mlp.of(contract).initial(contract.model.init_seed).numpy(),
    )
    settings = contract.training.model_dump() | contract.model.model_dump()
    settings |= {"rounds": options.rounds, "threads": options.threads}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    labels = np.concatenate([each.test.y for each in data])
    work = Work.read(folder)
    logits = work.score(work.network()).numpy().reshape(-1)
    return labels, round(float(roc_auc_score(labels, logits)), 4)


def compete(name: str, folder: Path, labels: np.ndarray, timeout: float) -> dict[str, Any] | str:
    """One contestant's figures, or why it has none."""
    script = Path(__file__).with_name(f"public_{name}.py")
    told_at = folder / "told.json"
    told_at.unlink(missing_ok=True)  # of the one before
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, script, folder],
            env={**os.environ, **QUIET},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {timeout:.0f} s"
    if done.returncode != 0 or not told_at.exists():
        return f"ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}"
    told = json.loads(told_at.read_text(encoding="utf-8"))
    wall, cpu = np.array(told["laps"]).T
    return {
        "seconds_per_round": round(float(np.diff(wall)[1:].min()), 4),
        "cpu_seconds_per_round": round(float(np.diff(cpu)[1:].min()), 4),
        "seconds_whole": round(float(wall[-1] - began), 2),
        "cpu_seconds_whole": round(float(cpu[-1]), 2),
        "auroc": round(float(roc_auc_score(labels, np.load(folder / "logits.npy"))), 4),
        "versions": told["versions"],
    }


def add_ratios(contestants: dict[str, dict[str, Any]]) -> None:
    """Every public simulator's seconds over ours."""
    ours = contestants[OURS]
    for name, found in contestants.items():
        if name != OURS:
            for kind, unit in (("cpu", "cpu_seconds"), ("wall", "seconds")):
                for end, after in (("_per_round", ""), ("_whole", "_whole")):
                    ratio = found[unit + end] / ours[unit + end]
                    found[f"{kind}_ratio{after}"] = round(ratio, 2)


def tell(result: dict[str, Any]) -> None:
    """The table for people."""
    print(f"{result['centers']} centers, {result['rounds']} rounds, load {result['load_before']}")
    print(f"AUROC of the initial weights {result['auroc_at_start']:.3f}")
    for name, found in result["contestants"].items():
        line = (
            f"{name:8} per round {found['seconds_per_round'] * 1e3:8.0f} ms, "
            f"processor {found['cpu_seconds_per_round'] * 1e3:8.0f} ms; "
            f"whole {found['seconds_whole']:6.1f} s, "
            f"processor {found['cpu_seconds_whole']:6.1f} s; AUROC {found['auroc']:.3f}"
        )
        if name != OURS:
            line += (
                f"; over ours {found['wall_ratio']:.1f} ×, processor {found['cpu_ratio']:.1f} ×, "
                f"whole {found['wall_ratio_whole']:.1f} ×, "
                f"processor {found['cpu_ratio_whole']:.1f} ×"
            )
        print(line)
    for name, why in result["left_out"].items():
        print(f"{name:8} left out: {why}")


if __name__ == "__main__":
    main()
