"""Real daemons on real patients, and one fault after another, drawn from a seed.

Faults: SIGKILL and a restart, SIGTERM and a restart, SIGSTOP and SIGCONT, links to a center cut or
delayed, a member revoked by another and admitted again, an attack of a hostile member. At most half
of the centers are down at once. When all faults are over everything is mended, the daemons run to
their end, and what must hold is checked (``Chaos.check``).
"""

from __future__ import annotations

import heapq
import random
import signal
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from abps_node.audit.replay import replay
from abps_node.audit.verify import verify
from abps_node.config import CenterConfig
from abps_node.exits import ExitCode
from abps_node.members_edit import add_member, revoke_keys
from abps_node.store.reader import Reader
from examples.rhc.prepare import CONTRACT, read_table, split_by_unit
from launch.layout import FederationLayout, read_layout, write_federation
from tests.chaos.links import Link, LoopThread
from tests.chaos.wolf import Wolf
from tests.support.center_processes import CenterProcess, last_round
from tests.support.soundness import check_pruned, check_state, disagreements, records
from tests.support.wards import edit_toml, free_ports

WOLF = "wolf"
WEIGHTS = {
    "kill": 4,
    "freeze": 4,
    "cut": 4,
    "delay": 3,
    "restart": 2,
    "revoke": 2,
    "attack": 3,
}
"""How often each kind of fault is drawn."""
DOWN = frozenset({"kill", "freeze", "cut", "restart"})
"""Faults through which a center cannot be reached for a while."""
RECORDED_MB = 64


def care_units(count: int) -> dict[str, pa.Table]:
    """The care units of RHC, the largest cut in two until there are ``count`` centers."""
    tables = split_by_unit(read_table())
    while len(tables) > count:
        del tables[max(tables, key=lambda name: tables[name].num_rows)]
    while len(tables) < count:
        name = max(tables, key=lambda each: (tables[each].num_rows, each))
        whole = tables.pop(name)
        half = whole.num_rows // 2
        tables[f"{name}-1"], tables[f"{name}-2"] = whole.slice(0, half), whole.slice(half)
    return tables


class Chaos:
    """One federation under faults. Use as a context manager; nothing of it is left behind."""

    def __init__(
        self, directory: Path, centers: int, rounds: int, seed: int, linger_s: float = 40.0
    ) -> None:
        self.rng = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.log: list[str] = []
        self._begun = time.monotonic()
        self._undo: list[tuple[float, int, str, Callable[[], None]]] = []
        self._count = 0
        self._busy: set[str] = set()
        self._down: set[str] = set()
        self._attacks: list[Future[str]] = []
        self._loop = LoopThread()
        self._processes: dict[str, CenterProcess] = {}
        self._links: dict[str, Link] = {}
        layout = self._lay_out(directory, centers, rounds, linger_s)
        self.centers = {each.id: each for each in layout.centers if each.id != WOLF}
        wolf = next(each for each in layout.centers if each.id == WOLF)
        self.wolf = Wolf(wolf, seed)
        self.rounds = rounds

    def __enter__(self) -> Chaos:
        for name in self.centers:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()
        self._loop.close()

    # The federation -----------------------------------------------------------------------------

    def _lay_out(
        self, directory: Path, centers: int, rounds: int, linger_s: float
    ) -> FederationLayout:
        contract = tomllib.loads(CONTRACT.read_text(encoding="utf-8"))
        contract["policy"] = {"preset": "abps-live", "gamma": 0.05, "rounds": rounds, "kappa": 2}
        contract["pacing"] = {
            "min_peers": 1,
            "start_wait_s": 60.0,
            "round_min_s": 0.5,
            "negotiation_s": 1.2,
            "exchange_s": 2.5,
            "linger_s": linger_s,
        }
        tables = care_units(centers)
        tables[WOLF] = next(iter(tables.values()))
        layout = write_federation(directory, contract, tables, compare_alone=False)
        ports = free_ports(len(tables))
        for center, port in zip(layout.centers, ports, strict=True):
            link = self._links[center.id] = Link(port)
            self._loop.do(link.open())
            addresses = {
                "bind": f"tcp://127.0.0.1:{port}",
                "advertise": f"tcp://127.0.0.1:{link.port}",
            }
            own = {**addresses, "record_stimuli": RECORDED_MB}
            edit_toml(center.path, lambda tables, new=own: tables.update(new))  # type: ignore[misc]
        return read_layout(directory)

    def _start(self, name: str) -> None:
        self._processes[name] = CenterProcess(self.centers[name])

    def running(self) -> list[str]:
        """Centers whose process has not ended, and that no fault holds at this moment."""
        return [
            name
            for name, process in self._processes.items()
            if process.exit_code is None and name not in self._busy
        ]

    def wait_for_round(self, number: int, wait_s: float = 240.0) -> None:
        """Until every center has committed this round."""
        deadline = time.monotonic() + wait_s
        while any(self._rounds_of(name) < number for name in self.centers):
            assert time.monotonic() < deadline, f"not all in round {number}: {self.state()}"
            time.sleep(0.1)

    def _rounds_of(self, name: str) -> int:
        return last_round(self.centers[name])

    def state(self) -> str:
        """Where each center stands, for whoever reads a failure."""
        return ", ".join(
            f"{name} {self._rounds_of(name)} {self._processes[name].exit_code}"
            for name in self.centers
        )

    # Faults -------------------------------------------------------------------------------------

    def run(self, faults: int, every_s: float) -> None:
        """So many faults, one after the other, at random distances around ``every_s``."""
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        while sum(self.faults.values()) < faults:
            kind = self.rng.choices(kinds, weights)[0]
            free = sorted(self.running())
            if free and (kind not in DOWN or len(self._down) < len(self.centers) // 2):
                self._strike(kind, self.rng.choice(free))
            assert free or self._busy, f"the rounds were over before the faults: {self.state()}"
            self._pass(self.rng.uniform(0.5, 1.5) * every_s)

    def _strike(self, kind: str, name: str) -> None:
        self.faults[kind] += 1
        self.log.append(f"{time.monotonic() - self._begun:7.1f} {kind} {name}")
        if kind in DOWN:
            self._down.add(name)
        getattr(self, f"_{kind}")(name)

    def _pass(self, seconds: float) -> None:
        """Let time pass, and mend what is due meanwhile."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            self._mend(now)
            time.sleep(0.02)

    def _mend(self, now: float) -> None:
        while self._undo and self._undo[0][0] <= now:
            _, _, name, undo = heapq.heappop(self._undo)
            undo()
            self._busy.discard(name)
            self._down.discard(name)

    def _later(self, name: str, low: float, high: float, undo: Callable[[], None]) -> None:
        """The center is left alone until ``undo`` is done."""
        self._busy.add(name)
        self._count += 1
        due = time.monotonic() + self.rng.uniform(low, high)
        heapq.heappush(self._undo, (due, self._count, name, undo))

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        process.send(signal.SIGKILL)
        process.wait_for_end()
        self._later(name, 0.0, 2.0, lambda: self._start(name))

    def _restart(self, name: str) -> None:
        process = self._processes[name]
        process.send(signal.SIGTERM)

        def again() -> None:
            code = process.wait_for_end()
            # One that is just starting has no handler yet; one that has finished is done.
            assert code in (ExitCode.STOPPED, ExitCode.OK, -signal.SIGTERM), process.said()[-2000:]
            self._start(name)

        self._later(name, 0.5, 2.0, again)

    def _freeze(self, name: str) -> None:
        process = self._processes[name]
        process.send(signal.SIGSTOP)
        self._later(name, 0.2, 4.0, lambda: process.send(signal.SIGCONT))

    def _cut(self, name: str) -> None:
        link = self._links[name]
        self._loop.do(link.set(cut=True))
        self._later(name, 0.2, 4.0, lambda: self._loop.do(link.set()))

    def _delay(self, name: str) -> None:
        link = self._links[name]
        self._loop.do(link.set(delay_s=self.rng.uniform(0.02, 0.4)))
        self._later(name, 1.0, 5.0, lambda: self._loop.do(link.set()))

    def _revoke(self, name: str) -> None:
        config = self.centers[name]
        other = self.centers[self.rng.choice(sorted(set(self.centers) - {name}))]
        revoke_keys(config, None, other.id)
        key = other.member.public_key
        self._later(name, 0.5, 4.0, lambda: _admit(config, other.id, key))

    def _attack(self, name: str) -> None:
        endpoint = f"tcp://127.0.0.1:{self._links[name].port}"
        self._attacks.append(self._loop.begin(self.wolf.attack(self.centers[name], endpoint)))

    # The end ------------------------------------------------------------------------------------

    def finish(self, wait_s: float) -> None:
        """Mend everything and let all run to their end; those that are dead are started again.

        The hostile member is revoked by all, so that nobody waits for it.
        """
        deadline = time.monotonic() + wait_s
        while self._undo:
            self._mend(time.monotonic())
            time.sleep(0.02)
        for attack in self._attacks:
            attack.result(60.0)
        for config in self.centers.values():
            revoke_keys(config, None, WOLF)
        for name, process in self._processes.items():
            if process.exit_code not in (None, ExitCode.OK):
                raise AssertionError(f"{name} {process.exit_code}: {process.said()[-2000:]}")
        for name, process in self._processes.items():
            left = max(1.0, deadline - time.monotonic())
            code = process.wait_for_end(left)
            assert code == ExitCode.OK, f"{name} {code}: {process.said()[-2000:]}"

    def check(self) -> dict[str, Any]:
        """What must hold whatever has happened; returns figures of the campaign."""
        configs: list[CenterConfig] = list(self.centers.values())
        for center in configs:
            check_state(center)
            check_pruned(center)
            assert len(records(center)) == self.rounds
            verdict = verify(center.state_dir)
            assert verdict.broken is None, str(verdict.broken)
            replay(center.state_dir)
        assert disagreements(configs) == []
        return self._figures(configs)

    def _figures(self, configs: list[CenterConfig]) -> dict[str, Any]:
        every = [record for center in configs for record in records(center)]
        starts = [Reader(center.state_dir).status().incarnation for center in configs]
        events = [e for center in configs for e in Reader(center.state_dir).events()]
        kinds = Counter(event.kind for event in events)
        refused = [p for record in every for p in record.failed if p.refused]
        return {
            "centers": len(configs),
            "faults": dict(sorted(self.faults.items())),
            "attacks": dict(sorted(self.wolf.attacks.items())),
            "starts": sum(starts),
            "rounds": len(every),
            "rounds_with_partners": sum(bool(record.partners) for record in every),
            "exchanges_merged": sum(len(record.partners) for record in every),
            "exchanges_failed": sum(len(record.failed) for record in every),
            "trunks_refused": len(refused),
            "outcomes_settled_later": kinds["session-settled"],
            "suspicions": kinds["peer-suspect"],
            "longest_round_s": round(max(record.durations["total"] for record in every), 1),
            "seconds": round(time.monotonic() - self._begun),
        }


def _admit(config: CenterConfig, center: str, key: str) -> None:
    add_member(config, center, key, None, None)
