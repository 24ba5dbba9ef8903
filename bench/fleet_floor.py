"""What a fleet on one host cannot do without: ``python bench/fleet_floor.py --centers 230``.

One process a center, forked as `abps launch local` forks them, and in each nothing but what the
algorithm itself asks for. No beliefs, no negotiation, no records, no log, no event loop. Whatever
the daemon's own code costs comes on top. By level, each with all before it:

- ``train``: the local step of every round, after a pause in which other centers ran,
- ``credit``: three passes over the validation rows (alone, with the partner, merged) and the merge,
- ``exchange``: a CURVE connection to one partner a round, which in a large federation is nearly
  always a new one, and a trunk each way,
- ``commit``: the round's state (weights and optimizer) made durable by one SQLite transaction.

The CPU time of the rounds alone counts, forks and reading patients do not. ``ratio`` is that over
the same steps in one process, one center after another, as in ``fleet.py``; ``private_mib`` the
memory that a center has for itself at its last round.

Human text first, one JSON object as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fleet
import zmq

from abps_node.data import load_center
from abps_node.learning import Learner
from launch.children import fork
from launch.layout import FederationLayout
from launch.template import single_threaded, warm_up

LEVELS: Final = ("train", "credit", "exchange", "commit")
PAUSE_S: Final = (0.5, 1.5)
"""Between two rounds of a center."""


@dataclass
class Partners:
    """The socket of one center, and a connection to whom it meets in a round."""

    number: int
    folder: Path
    keys: list[tuple[bytes, bytes]]
    context: zmq.Context[Any] = field(default_factory=zmq.Context)

    def __post_init__(self) -> None:
        self.server = self.context.socket(zmq.ROUTER)
        self.server.curve_server = True
        self.server.curve_publickey, self.server.curve_secretkey = self.keys[self.number]
        self.server.bind(self._address(self.number))

    def _address(self, number: int) -> str:
        return f"ipc://{self.folder}/{number}"

    def exchange(self, partner: int, trunk: bytes) -> bytes:
        """Trunks of both; the one with the lower number connects."""
        if partner < self.number:
            name, theirs = self.server.recv_multipart()
            self.server.send_multipart([name, trunk])
            return bytes(theirs)
        with self.context.socket(zmq.DEALER) as socket:
            socket.curve_serverkey = self.keys[partner][0]
            socket.curve_publickey, socket.curve_secretkey = self.keys[self.number]
            socket.connect(self._address(partner))
            socket.send(trunk)
            return bytes(socket.recv())


def partner_of(number: int, round: int, centers: int) -> int:
    """A tournament: everybody meets somebody else in every round, ``centers`` being even."""
    last = centers - 1
    if number == last:
        return next(n for n in range(last) if (2 * n - round) % last == 0)
    partner = (round - number) % last
    return last if partner == number else partner


def one_center(
    level: int, layout: FederationLayout, number: int, keys: list[tuple[bytes, bytes]], folder: Path
) -> dict[str, float]:
    """All rounds of a center; its CPU seconds and private memory."""
    contract, center = layout.contract, layout.centers[number]
    learner = Learner(contract, load_center(contract, center.id, center.data), center.seed)
    pause = random.Random(number)
    partners = Partners(number, folder, keys) if level >= 2 else None
    with closing(sqlite3.connect(folder / f"{number}.sqlite", isolation_level=None)) as state:
        state.execute("PRAGMA journal_mode = WAL")
        state.execute("PRAGMA synchronous = FULL")
        state.execute("CREATE TABLE rounds (round INTEGER PRIMARY KEY, state BLOB)")
        begin = time.process_time()
        for round in range(1, contract.policy.rounds + 1):
            time.sleep(pause.uniform(*PAUSE_S))
            trunk = learner.train(round).trunk
            if partners is not None:
                half = trunk.astype("float16").tobytes()
                partners.exchange(partner_of(number, round, len(layout.centers)), half)
            if level >= 1:
                met, both = {"partner": trunk}, [frozenset[str](), frozenset({"partner"})]
                learner.merge(round, met, {"partner": 0.5}, both)
            if level >= 3:
                tensors = learner.state_tensors()
                blob = b"".join(tensor.numpy().tobytes() for tensor in tensors.values())
                state.execute("INSERT INTO rounds VALUES (?, ?)", (round, blob))
        spent = time.process_time() - begin
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    return {"cpu_s": spent, "private_mib": private / 1024}


def measure(level: int, layout: FederationLayout) -> dict[str, float]:
    """Sum over all centers of CPU seconds, mean of private memory."""
    centers = len(layout.centers)
    keys = [zmq.curve_keypair() for _ in range(centers)]
    folder = Path(tempfile.mkdtemp(prefix="floor-"))
    try:
        children = []
        for number in range(centers):

            def work(number: int = number) -> int:
                found = one_center(level, layout, number, keys, folder)
                (folder / f"{number}.json").write_text(json.dumps(found))
                return 0

            children.append(fork(work, 2, lambda: None))
        while any(child.poll() is None for child in children):
            time.sleep(0.2)
        found = list(_found(folder, centers))
    finally:
        shutil.rmtree(folder)
    return {
        "cpu_s": sum(one["cpu_s"] for one in found),
        "private_mib": sum(one["private_mib"] for one in found) / centers,
    }


def _found(folder: Path, centers: int) -> Iterator[dict[str, float]]:
    for number in range(centers):
        yield json.loads((folder / f"{number}.json").read_text())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--centers", type=int, default=230, help="an even number")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--data", choices=("synthetic", "ist"), default="synthetic")
    options = parser.parse_args()
    if options.centers % 2:
        parser.error(f"--centers: found {options.centers}, allowed: an even number")
    directory = Path(tempfile.mkdtemp(prefix="fleet-"))
    layout = fleet.lay_out(directory, options.data, options.centers, options.rounds)
    warm_up(layout.contract)
    result: dict[str, Any] = {"centers": options.centers, "rounds": options.rounds}
    per_round = 1e3 / (options.centers * options.rounds)
    bare = fleet.bare_training_s(layout)
    print(f"bare training       {bare * per_round:.2f} ms per center-round")
    for level, name in enumerate(LEVELS):
        seen = measure(level, layout)
        result[name] = {
            "ratio": round(seen["cpu_s"] / bare, 2),
            "ms": round(seen["cpu_s"] * per_round, 2),
            "private_mib": round(seen["private_mib"], 1),
        }
        print(f"{name:20}{result[name]}", flush=True)
    shutil.rmtree(directory)
    result["bare_ms"] = round(bare * per_round, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":
        single_threaded()  # of use only before numpy is imported
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
