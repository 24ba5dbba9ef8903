"""How a fleet of daemons on one host does: ``python bench/fleet.py --centers 230``.

Lays out a federation, lets `abps launch local` run it to its end, and measures:

- ``up_s``: from the start of the command until every center has announced its address,
- ``pss_gib``: proportional set sizes of all its processes, summed, when they were largest, and
  ``pss_end_gib``: the same at the last look at which no center had left yet,
- ``wall_s``, and ``cpu_ratio``: CPU time of everything (imports, supervisor, daemons, reports) over
  that of the bare local training: the daemon's own step, all centers in turn, one process,
- ``edges_mismatched``: pairs of centers whose ledgers disagree about a session after the end,
- ``ms_per_center_round``: wall time of each phase, from the records of all rounds, and CPU time.

Human text first, one JSON object as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from abps_node.data import load_center
from abps_node.learning import Learner
from abps_node.store.reader import Reader
from launch.layout import FederationLayout, read_layout, write_federation
from launch.template import single_threaded
from protocol.contract import Contract
from protocol.session import State

PATIENTS: Final = 310
FEATURES: Final = 60
LOOK_S: Final = 1.0
PSS_EVERY_S: Final = 10.0
PACING: Final[dict[str, Any]] = {
    "greet": "needed",
    "round_min_s": 1.0,
    "negotiation_s": 20.0,
    "exchange_s": 60.0,
    "start_wait_s": 60.0,
}


_AGREEING: Final = {
    State.COMPLETE: State.COMPLETE,
    State.RECEIVED_ONLY: State.SENT_ONLY,
    State.SENT_ONLY: State.RECEIVED_ONLY,
    State.ABORTED: State.ABORTED,
}


@dataclass
class Watched:
    """What was seen of the run from outside."""

    up_s: float | None
    wall_s: float
    cpu_s: float
    pss_gib: float
    pss_end_gib: float
    sockets_most: int
    """Most open descriptors of one process at any look."""
    exit_code: int


def synthetic(centers: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The paper's shape: equal centers, a common signal, and each its own deviation from it."""
    rng = np.random.default_rng(7)
    common = rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
    names = [f"x{number:02d}" for number in range(FEATURES)]
    tables = {}
    for number in range(centers):
        weights = 2 * common + rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
        x = rng.standard_normal((PATIENTS, FEATURES))
        died = rng.random(PATIENTS) < 1 / (1 + np.exp(1.5 - x @ weights))
        columns = {name: x[:, place] for place, name in enumerate(names)}
        tables[f"c{number:03d}"] = pa.table({"died": died.astype(np.int8), **columns})
    features = [{"name": name, "kind": "continuous"} for name in names]
    return {"label": "died", "features": features}, tables


def ist(centers: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The largest hospitals of the International Stroke Trial."""
    from sim.datasets import ist as trial
    from sim.datasets.base import CENTER

    dataset = trial.load(Path(os.environ["ABPS_DATA_DIR"]) / "ist", trial.Options(centers=centers))
    names = dataset.table.column(CENTER).to_pylist()
    tables = {}
    for center in sorted(set(names)):
        mask = pa.array([name == center for name in names])
        tables[center] = dataset.table.filter(mask).drop_columns([CENTER])
    return dataset.data.model_dump(mode="json", exclude_none=True), tables


def lay_out(directory: Path, data: str, centers: int, rounds: int) -> FederationLayout:
    """The federation directory."""
    schema, tables = (synthetic if data == "synthetic" else ist)(centers)
    contract = Contract.model_validate(
        {
            "name": f"fleet of {centers}, {data}",
            "data": schema,
            "policy": {"preset": "abps+p+q+k1", "rounds": rounds},
            "pacing": PACING,
        }
    )
    return write_federation(directory, contract, tables, compare_alone=False)


def bare_training_s(layout: FederationLayout) -> float:
    """CPU seconds of all local steps and nothing else, one center after another."""
    import torch

    torch.set_num_threads(1)
    contract = layout.contract
    learners = [
        Learner(contract, load_center(contract, c.id, c.data), c.seed) for c in layout.centers
    ]
    learners[0].train(1)
    begin = time.process_time()
    for learner in learners:
        for number in range(1, contract.policy.rounds + 1):
            learner.train(number)
    return time.process_time() - begin


def watch(layout: FederationLayout, command: list[str]) -> Watched:
    """Run the launcher and look at it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    cards, expected = layout.directory / "cards", len(layout.centers)
    with (layout.directory / "launch.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    up_s, pss, pss_end, sockets, next_pss = None, 0.0, 0.0, 0, 0.0
    while process.poll() is None:
        time.sleep(LOOK_S if up_s is not None else 0.05)
        if up_s is None and len(list(cards.glob("*.json"))) == expected:
            up_s = time.monotonic() - begin
        if up_s is not None and time.monotonic() >= next_pss:
            next_pss = time.monotonic() + PSS_EVERY_S
            family = _family(process.pid)
            sizes = [size for pid in family if (size := _pss_bytes(pid))]
            found = sum(sizes) / 2**30
            # While centers leave there are fewer of them: what counts is the fullest house.
            pss = max(pss, found)
            if len(sizes) > expected:  # one that has ended and was not collected yet has none
                pss_end = found
            sockets = max([sockets, *(_descriptors(pid) for pid in family[1:])])
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Watched(up_s, wall, cpu, pss, pss_end, sockets, process.returncode)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [pid, *map(int, children.read_text().split())]
    except OSError:
        return []


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def mismatched_edges(layout: FederationLayout) -> int:
    """Pairs of centers whose ledgers tell one session differently, or have not settled it."""
    ledgers = {
        center.id: {session.id: session for session in Reader(center.state_dir).sessions()}
        for center in layout.centers
    }
    edges = set()
    for center, sessions in ledgers.items():
        for name, session in sessions.items():
            other = ledgers[session.peer].get(name)
            agreeing = _AGREEING[_outcome(session.state)] is _outcome(other and other.state)
            if not (agreeing and session.settled):
                edges.add(frozenset((center, session.peer)))
    return len(edges)


def _outcome(state: str | None) -> State:
    """A withdrawn session, and one that a side has never promised, is one that came to nothing."""
    return State.ABORTED if state in (None, State.WITHDRAWN) else State(state)


def phases(layout: FederationLayout) -> tuple[dict[str, float], Counter[str]]:
    """Mean milliseconds of each phase of a round, and how rounds ended."""
    sums: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    rounds = 0
    for center in layout.centers:
        for entry in Reader(center.state_dir).rounds():
            rounds += 1
            for name, seconds in entry.record.durations.items():
                sums[name] += seconds
            rest = entry.record.rest
            ends["partner" if rest is None else str(rest.cause)] += 1
    return {name: 1e3 * value / rounds for name, value in sums.items()}, ends


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--centers", type=int, default=230)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--data", choices=("synthetic", "ist"), default="synthetic")
    parser.add_argument("--keep", type=Path, help="where to leave the federation directory")
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="fleet-"))
    layout = lay_out(directory, options.data, options.centers, options.rounds)
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(directory)]
    seen = watch(layout, command)
    layout = read_layout(directory)
    bare = bare_training_s(layout)
    lasted, ends = phases(layout)
    finished = sum(Reader(center.state_dir).status().finished for center in layout.centers)
    lost = len(layout.centers) - finished
    total = len(layout.centers) * options.rounds
    result = {
        "centers": len(layout.centers),
        "rounds": options.rounds,
        "data": options.data,
        "up_s": seen.up_s,
        "pss_gib": round(seen.pss_gib, 3),
        "pss_end_gib": round(seen.pss_end_gib, 3),
        "wall_s": round(seen.wall_s, 1),
        "cpu_s": round(seen.cpu_s, 1),
        "bare_training_s": round(bare, 1),
        "cpu_ratio": round(seen.cpu_s / bare, 2),
        "edges_mismatched": mismatched_edges(layout),
        "lost": lost,
        "exit_code": seen.exit_code,
        "descriptors_most": seen.sockets_most,
        "ms_per_center_round": {
            **{name: round(value, 2) for name, value in lasted.items()},
            "cpu": round(1e3 * seen.cpu_s / total, 2),
            "cpu_bare_training": round(1e3 * bare / total, 2),
        },
        "rounds_by_end": dict(ends),
    }
    for key, value in result.items():
        print(f"{key:20} {value}")
    if options.keep is None:
        shutil.rmtree(directory)
    print(json.dumps(result))


if __name__ == "__main__":
    single_threaded()
    main()
