"""All centers of a federation directory on this machine: started, followed, ended together."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rich.console import Console

from abps_node.cli.human import count, metric_name
from abps_node.config import CenterConfig
from abps_node.errors import StoreError
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from abps_node.store.views import Status
from launch.children import Child, execute
from launch.layout import FederationLayout
from launch.progress import CenterView, Progress, progress_on
from launch.restarts import FINAL, RestartPolicy
from launch.running import recorded
from launch.start_gate import StartGate
from launch.supervisor import LaunchError, Start, Supervisor, Ward, fork_daemon, succeeded
from launch.template import warm_up
from protocol.center import Phase

Command = Callable[[CenterConfig], Sequence[str]]
"""The command line that runs one center in the foreground."""

_ENDED: Final[dict[int, str]] = {ExitCode.OK: "finished", ExitCode.STOPPED: "stopped"}
"""The ends that are in order, as the table shows them."""
CENTERS_PER_CORE: Final = 32
"""A center needs some 25 ms of processor time a round, and a round may last a second."""
_MANY: Final = 12
"""Centers beyond this number are counted, not listed."""
_LOOKS_PER_S: Final = 20.0
"""States of centers that are read for the table, at most, so that looking costs next to nothing."""


def launch_local(
    layout: FederationLayout,
    *,
    console: Console | None = None,
    command: Command | None = None,
    restarts: RestartPolicy | None = None,
    grace_s: float | None = None,
    job: str | None = None,
) -> int:
    """Start the centers of ``layout``, follow them until all have ended.

    Each is forked from this process, which must have one thread only; with ``command`` it is a
    program of its own. What a center prints, apart from
    its log, goes to ``console.log`` in its state directory. A center that crashes is started again
    as ``restarts`` allows; one that ends for good is named with its exit code and its last words;
    the others go on. Ctrl-C, SIGTERM and SIGHUP ask all to end, kill after ``grace_s`` seconds what
    is left, and at once if they come again. What was broken off goes on at the next launch; where
    all have finished nothing is started.

    ``job``: number of the batch job that calls. Copies of its centers that still run are superseded
    instead of refused, and signals that come again are those that came before.

    Returns 0 if every center finished, else 1. Raises ``TemplateError``, and ``LaunchError`` if a
    center of the directory is running already.
    """
    progress = progress_on(console or Console(stderr=True), _title(layout))
    before = {center.id: _status(center) for center in layout.centers}
    known = [status for status in before.values() if status is not None]
    if job is None:
        _refuse_running(known)
    if all(_is_done(center, before[center.id]) for center in layout.centers):
        progress.say(f"All {len(before)} centers have finished; nothing to start.")
        return 0
    if known:
        progress.say(f"Going on after the last committed rounds ({_rounds(known)}).")
    if crowd := too_many(len(layout.centers), usable_cores()):
        progress.say(crowd, warn=True)
    with recorded(layout.directory, job):
        if command is None:
            warm_up(layout.contract)
        hurry = job is None
        launch = _Launch(layout, progress, hurry)
        gate = StartGate(len(layout.centers)) if command is None else None
        start = partial(fork_daemon, gate=gate) if command is None else _starting(command)
        policy = restarts or RestartPolicy()
        supervisor = Supervisor(
            layout.centers, start, launch, policy, grace_s, hurry=hurry, gate=gate
        )
        return launch.run(supervisor)


def usable_cores() -> int:
    """Processors that this process may use, which a batch system may have made fewer."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def too_many(centers: int, cores: int) -> str | None:
    """A warning, if so many centers are more than ``CENTERS_PER_CORE`` on each core."""
    if centers <= CENTERS_PER_CORE * cores:
        return None
    return (
        f"{centers} centers share {count(cores, 'core')}, more than {CENTERS_PER_CORE} on each: "
        "rounds will last longer than the contract's least time, and slow answers may cost partners"
    )


def _starting(command: Command) -> Start:
    """Centers as programs of their own."""

    def start(center: CenterConfig, output: int, let_go: Callable[[], None]) -> Child:
        return execute(command(center), output)

    return start


def _title(layout: FederationLayout) -> str:
    policy = layout.contract.policy
    return (
        f"{layout.contract.name}: {count(len(layout.centers), 'center')}, preset {policy.preset}, "
        f"goal {policy.goal}, κ {policy.kappa}, {policy.rounds} rounds"
    )


def _status(center: CenterConfig, readers: dict[str, Reader] | None = None) -> Status | None:
    """The center's state, or None before its first start.

    ``readers`` are kept between looks, since each has read the contract.

    Also None for a state that cannot be read: the center itself says what is wrong with it, and
    ends with an exit code of its own.
    """
    kept = {} if readers is None else readers
    try:
        reader = kept.get(center.id) or Reader(center.state_dir)
        kept[center.id] = reader
        return reader.status()
    except StoreError:
        return None


def _rounds(known: Sequence[Status]) -> str:
    if len(known) <= _MANY:
        return ", ".join(f"{status.center} {status.last_round}" for status in known)
    rounds = [status.last_round for status in known]
    return f"{len(known)} centers, {min(rounds)} to {max(rounds)}"


def _refuse_running(known: Sequence[Status]) -> None:
    """A second copy would supersede the first, which is never meant here."""
    for status in known:
        if status.condition == "running":
            raise LaunchError(
                f"{status.center}: is running already as process {status.pid}; end it first"
            )


def _is_done(center: CenterConfig, status: Status | None) -> bool:
    """Whether all rounds are committed and all reports written."""
    if status is None or not status.finished:
        return False
    reader = Reader(center.state_dir)
    reports = ("federated", "alone") if center.compare_alone else ("federated",)
    return all(reader.report(name) is not None for name in reports)


class _Launch:
    """One run of all centers, as people see it."""

    def __init__(self, layout: FederationLayout, progress: Progress, hurry: bool) -> None:
        self._layout = layout
        self._progress = progress
        self._wards: dict[str, Ward] = {}
        self._readers: dict[str, Reader] = {}
        self._hurry = hurry
        self._stopping = False
        self.period_s = max(progress.period_s, len(layout.centers) / _LOOKS_PER_S)

    def run(self, supervisor: Supervisor) -> int:
        """Until all have ended; the exit code."""
        self._wards = {ward.center.id: ward for ward in supervisor.wards}
        with self._progress:
            supervisor.run()
            if supervisor.killed:
                names = ", ".join(supervisor.killed)
                self._progress.say(f"killed, for they did not end: {names}", warn=True)
        finished = succeeded(supervisor.wards)
        if not finished and supervisor.stopping:
            self._progress.say("Stopped. The same command goes on where the centers stopped.")
        return 0 if finished else 1

    def stopping(self) -> None:
        """See ``Listener``."""
        self._stopping = True
        again = "; once more kills them at once" if self._hurry else ""
        self._progress.say(f"stopping all centers{again}", warn=True)

    def ended(self, ward: Ward, code: int, restart_s: float | None) -> None:
        """Name a center that ended otherwise than it should."""
        expected: set[int] = {ExitCode.OK}
        if self._stopping:
            expected |= {ExitCode.STOPPED, -signal.SIGTERM, -signal.SIGKILL}
        if code in expected:
            return
        words = "" if ward.console is None else ward.console.last_words()
        text = f"{ward.center.id}: {exit_meaning(code)}"
        text += f"; its last words: {words}" if words else ""
        if restart_s is not None:
            text += f"; started again in {restart_s:g} s (crash {ward.crashes.in_a_row} in a row)"
        elif not self._stopping and code not in FINAL and ward.crashes.in_a_row > 1:
            text += f"; given up after {ward.crashes.in_a_row} crashes in a row"
        self._progress.say(text, warn=True)

    def look(self) -> None:
        """Show all centers as they are now."""
        self._progress.update([self._view(center) for center in self._layout.centers])

    def _view(self, center: CenterConfig) -> CenterView:
        status, ward = _status(center, self._readers), self._wards[center.id]
        code = ward.code if ward.due is None else None
        phase = Phase.STARTING if status is None or status.phase is None else status.phase
        if status is not None and status.finished and phase == Phase.STOPPED:
            phase = "measuring"  # nobody is left to answer, the reports are being written
        if ward.due is not None:
            phase = "crashed"
        if code is not None:
            phase = _ENDED.get(code) or exit_meaning(code, short=True)
            if status is not None and status.condition == "left":
                phase = "left"
        last = metric = ""
        if status is not None and status.validation is not None:
            last = ", ".join(status.partners_last) or "none"
            metric = f"{metric_name(status.validation.metric)} {status.validation.value:.3f}"
        return CenterView(
            id=center.id,
            phase=phase,
            done=status is not None and status.finished,
            failed=code is not None and code not in _ENDED,
            round=0 if status is None else status.last_round,
            rounds=center.federation.contract.policy.rounds,
            last=last,
            metric=metric,
            rests=0 if status is None else sum(status.isolated.values()),
        )


def exit_meaning(code: int, *, short: bool = False) -> str:
    """What the exit code of a center says, in words; negative ones are signals."""
    if code < 0:
        return f"ended by signal {-code} ({signal.strsignal(-code)})"
    known = next((entry for entry in ExitCode if entry == code), None)
    if short or known is None:
        return f"exit {code}"
    return f"exit {code}: {known.meaning}"
