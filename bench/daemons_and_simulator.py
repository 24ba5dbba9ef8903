"""The same federation twice: real daemons that run freely, and the simulator on the same files.

Writes a federation directory (default: the 40 largest hospitals of the International Stroke Trial),
lets ``abps launch local`` run it to its end, then lets the simulator play the same directory with
several seeds. Split and initial weights are the directory's in both; the simulator's seeds are what
its batches, ties and order of proposals are drawn from. So its spread over seeds is the spread that
chance alone makes, and daemons, whose chance is time itself, should lie within.

Needs the data (``ABPS_DATA_DIR``). A line for people per contestant; as its last line one JSON
object: ``daemons`` (an entry per run), ``simulator`` (per seed), mean and spread of their AUROC.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from abps_node.learning.model import Mlp
from abps_node.store.reader import Reader
from launch.layout import FederationLayout, read_layout
from sim.bandwidth import bandwidth_ratio
from sim.runner import Cell, run
from sim.sources import Source

SEEDS = (11, 22, 33, 44, 55)
KEYS = ("mean_auroc", "scored_centers", "bandwidth_ratio", "mean_partners", "belief_changed_order")


def main() -> None:
    """Run both and print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ist")
    parser.add_argument("--centers", type=int, default=40)
    parser.add_argument("--preset", default="abps+p+q+k1")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--runs", type=int, default=3, help="of the daemons")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "federation")
        _abps(
            "data",
            "prepare",
            options.data,
            "--centers",
            str(options.centers),
            "--preset",
            options.preset,
            "--rounds",
            str(options.rounds),
            "--out",
            str(directory),
        )
        daemons = []
        for number in range(1, options.runs + 1):
            copy = shutil.copytree(directory, Path(folder, f"run-{number}"))
            _abps("launch", "local", str(copy))
            daemons.append(of_daemons(read_layout(copy)))
            told(f"daemons, run {number}", daemons[-1])
        simulated = []
        for seed in options.seeds:
            simulated.append(of_simulator(directory, options.preset, seed, options.rounds))
            told(f"simulator, seed {seed}", simulated[-1])
    found = {"preset": options.preset, "centers": options.centers, "rounds": options.rounds}
    for who, results in (("daemons", daemons), ("simulator", simulated)):
        values = [result["mean_auroc"] for result in results]
        spread = statistics.stdev(values) if len(values) > 1 else None
        found |= {who: results, f"{who}_mean": statistics.fmean(values), f"{who}_stdev": spread}
    print(json.dumps(found))


def of_simulator(directory: Path, method: str, seed: int, rounds: int) -> dict[str, Any]:
    """What the simulator makes of the directory."""
    source = Source(directory=directory)
    result = run(Cell(method, seed, source, policy={"rounds": rounds}))
    return {**{key: result[key] for key in KEYS}, "isolation": result["isolation"]}


def of_daemons(layout: FederationLayout) -> dict[str, Any]:
    """The same figures from the daemons' own records, counted in the same way."""
    contract = layout.contract
    size = Mlp.of(contract).size
    trunk_bytes = Mlp.of(contract).trunk.size * (
        2 if contract.policy.wire_dtype == "bfloat16" else 4
    )
    aurocs, partners, rounds, changed = [], 0, 0, 0
    lags: list[int] = []
    causes: Counter[str] = Counter()
    for center in layout.centers:
        reader = Reader(center.state_dir)
        report = reader.report("federated")
        if report is None:
            raise SystemExit(f"{center.id}: has no final report")
        if report["auroc"] is not None:
            aurocs.append(report["auroc"])
        for entry in reader.rounds():
            record = entry.record
            rounds += 1
            partners += len(record.partners)
            lags += [abs(each.lag) for each in record.partners if each.lag is not None]
            changed += record.belief_changed_order
            if record.rest is not None:
                causes[record.rest.cause.value] += 1
    each = rounds / len(layout.centers)
    return {
        "mean_auroc": statistics.fmean(aurocs),
        "scored_centers": len(aurocs),
        "bandwidth_ratio": bandwidth_ratio(
            partners * trunk_bytes, len(layout.centers), size, round(each)
        ),
        "mean_partners": partners / rounds,
        "belief_changed_order": changed / rounds,
        "mean_lag": statistics.fmean(lags),
        "isolation": {cause: count / rounds for cause, count in sorted(causes.items())},
    }


def told(who: str, found: dict[str, Any]) -> None:
    """One line for people."""
    rested = sum(found["isolation"].values())
    lag = f", partners {found['mean_lag']:.1f} rounds apart" if "mean_lag" in found else ""
    print(
        f"{who:20} AUROC {found['mean_auroc']:.4f} over {found['scored_centers']} centers, "
        f"bandwidth {found['bandwidth_ratio']:.3f}×, partners {found['mean_partners']:.3f}, "
        f"changed by belief {found['belief_changed_order']:.0%}, rested {rested:.1%}{lag}",
        flush=True,
    )


def _abps(*words: str) -> None:
    """Run a command of the program; its words go to stderr."""
    subprocess.run([sys.executable, "-m", "abps_node", *words], stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main()
