"""A federation in which every kind of thing has happened to some center, made without daemons."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from abps_node.config import CenterConfig
from abps_node.store import Store
from abps_node.store.process import this_host
from abps_node.store.schema import STATE_FILE
from launch.layout import FederationLayout
from protocol.effects import CommitRound, PhaseChanged
from protocol.record import RestCause
from tests.support.layouts import small_federation
from tests.support.records import Chronicle

CENTERS = ("absent", "broken", "choosy", "dead", "done", "held", "lonely", "stopped")
Commits = list[CommitRound]


def report(auroc: float | None = 0.7) -> dict[str, object]:
    """A test report; without an AUROC its split had one class only."""
    width = None if auroc is None else 0.1
    return {
        "rows": 60,
        "events": 15,
        "auroc": auroc,
        "auroc_low": None if auroc is None or width is None else auroc - width,
        "auroc_high": None if auroc is None or width is None else auroc + width,
        "auprc": 0.5,
        "brier": 0.1,
        "calibration_slope": 1.0,
    }


def half_dead(directory: Path) -> FederationLayout:
    """All of ``CENTERS``, each as it is called; «held» is only held within ``holding``."""
    layout = small_federation(directory, CENTERS, rounds=9)
    centers = {center.id: center for center in layout.centers}
    write(centers["done"], finished(centers["done"]), reports=("alone", "federated"))
    write(centers["stopped"], some(centers["stopped"], 2))
    write(centers["choosy"], resting(centers["choosy"], RestCause.BELOW_THRESHOLD), pid=os.getpid())
    write(centers["lonely"], resting(centers["lonely"], RestCause.NO_PEERS), pid=os.getpid())
    write(centers["dead"], some(centers["dead"], 3), pid=os.getpid())
    gone(centers["dead"])
    (centers["dead"].state_dir / "console.log").write_text("Killed \x1b[31mby nobody\n")
    write(centers["held"], some(centers["held"], 4))
    write(centers["broken"], some(centers["broken"], 5))
    damage(centers["broken"])
    return layout


def some(center: CenterConfig, rounds: int) -> Commits:
    """Rounds with partners."""
    chronicle = _chronicle(center)
    return [chronicle.with_partners({"done": 0.05}) for _ in range(rounds)]


def finished(center: CenterConfig) -> Commits:
    """A run to its end, with a rest."""
    chronicle = _chronicle(center)
    first = chronicle.with_partners({"stopped": 0.05, "dead": -0.03}, validation=0.6)
    rest = chronicle.resting(RestCause.ALL_BUSY, "1 attempt: 1 busy")
    return [first, rest, chronicle.with_partners({"dead": 0.01}, finished=True)]


def resting(center: CenterConfig, cause: RestCause, rounds: int = 4) -> Commits:
    """Rounds without a partner."""
    chronicle = _chronicle(center)
    return [chronicle.resting(cause, f"why {cause} <b>&") for _ in range(rounds)]


def write(
    center: CenterConfig,
    commits: Commits,
    *,
    reports: tuple[str, ...] = (),
    pid: int | None = None,
    traffic: Mapping[str, int] | None = None,
) -> None:
    """A state of these rounds; with ``pid`` as if that process still ran the center."""
    store = Store.open(center.state_dir, center.id, center.federation.contract)
    store.begin_incarnation()
    if pid is not None:
        store.set_runtime("tcp://127.0.0.1:5555", pid)
    for commit in commits:
        store.commit_round(commit)
    for place, name in enumerate(reports):
        store.save_report(name, report(0.6 + 0.05 * place))
    for kind, size in (traffic or {"weights": 120_000, "propose": 900}).items():
        store.add_traffic({("done", "out", kind): (2, size, size), ("done", "in", kind): (1, 7, 9)})
    if pid is None:
        store.close()
        return
    store.phase(PhaseChanged("gathering", len(commits) + 1))
    store.close(clean=False)


def gone(center: CenterConfig) -> None:
    """As if the process of the center had died an hour ago."""
    _execute(center, "UPDATE meta SET pid_started = '1', phase_since = phase_since - 3600")


def elsewhere(center: CenterConfig, silent_s: float) -> None:
    """As if the center had run on another machine, and said nothing for so long."""
    assert this_host() != "far-away"
    then = time.time() - silent_s
    _execute(center, "UPDATE meta SET host = 'far-away'")
    _execute(center, f"UPDATE meta SET started = {then}, phase_since = {then}")
    _execute(center, f"UPDATE rounds SET at = {then}")
    _execute(center, f"UPDATE events SET at = {then}")


def damage(center: CenterConfig) -> None:
    """Pages of the state file that are not what was written."""
    path = center.state_dir / STATE_FILE
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


@contextmanager
def holding(center: CenterConfig) -> Iterator[None]:
    """Somebody holds the state file and does not let it go."""
    holder = sqlite3.connect(center.state_dir / STATE_FILE, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.close()


def _chronicle(center: CenterConfig) -> Chronicle:
    return Chronicle(center.id, center.federation.contract, peers=("done", "dead", "stopped"))


def _execute(center: CenterConfig, statement: str) -> None:
    database = sqlite3.connect(center.state_dir / STATE_FILE)
    with database:
        database.execute(statement)
    database.close()
