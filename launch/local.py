"""All centers of a federation directory on this machine: started, followed, ended together."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from abps_node.config import CenterConfig
from abps_node.errors import NodeError, StoreError
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from abps_node.store.views import Status
from launch.layout import FederationLayout, read_layout
from launch.processes import STOP_GRACE_S, Child, start, stop_all
from launch.progress import CenterView, Progress, progress_on
from protocol.center import Phase

Command = Callable[[CenterConfig], Sequence[str]]
"""The command line that runs one center in the foreground."""

_ENDED: Final[dict[int, str]] = {ExitCode.OK: "finished", ExitCode.STOPPED: "stopped"}
"""The ends that are in order, as the table shows them."""
_CONSOLE_TAIL_BYTES: Final = 16_384


class LaunchError(NodeError):
    """The federation cannot be started as it is."""


def daemon_command(center: CenterConfig) -> list[str]:
    """``abps run center.toml``, by the interpreter that runs now."""
    return [sys.executable, "-m", "abps_node", "run", str(center.path)]


def launch_local(
    directory: Path,
    *,
    console: Console | None = None,
    command: Command = daemon_command,
    grace_s: float = STOP_GRACE_S,
) -> int:
    """Start every center of ``directory`` as a process, follow them until all have ended.

    Each appends what it prints to ``console.log`` in its state directory. A center that ends early
    is named with its exit code and its last words; the others go on. Ctrl-C, SIGTERM and SIGHUP
    ask all to end, kill after ``grace_s`` seconds what is left, and at once if they come again.
    What was broken off goes on at the next launch; where all have finished nothing is started.

    Returns 0 if every center finished, else 1. Raises ``LayoutError``, ``ConfigError``, and
    ``LaunchError`` if a center of the directory is running already.
    """
    layout = read_layout(directory)
    progress = progress_on(console or Console(stderr=True), _title(layout))
    before = {center.id: _status(center) for center in layout.centers}
    known = [status for status in before.values() if status is not None]
    _refuse_running(known)
    if all(_is_done(center, before[center.id]) for center in layout.centers):
        progress.say(f"All {len(before)} centers have finished; nothing to start.")
        return 0
    if known:
        rounds = ", ".join(f"{status.center} {status.last_round}" for status in known)
        progress.say(f"Going on after the last committed rounds ({rounds}).")
    return asyncio.run(_Launch(layout, progress, command, grace_s).run())


def _title(layout: FederationLayout) -> str:
    policy = layout.contract.policy
    return (
        f"{layout.contract.name}: {len(layout.centers)} centers, preset {policy.preset}, "
        f"goal {policy.goal}, κ {policy.kappa}, {policy.rounds} rounds"
    )


def _status(center: CenterConfig) -> Status | None:
    """The center's state, or None before its first start.

    Also None for a state that cannot be read: the center itself says what is wrong with it, and
    ends with an exit code of its own.
    """
    if not (center.state_dir / STATE_FILE).is_file():
        return None
    try:
        return Reader(center.state_dir).status()
    except StoreError:
        return None


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
    """One run of all centers."""

    def __init__(
        self, layout: FederationLayout, progress: Progress, command: Command, grace_s: float
    ) -> None:
        self._layout = layout
        self._progress = progress
        self._command = command
        self._grace_s = grace_s
        self._children: dict[str, Child] = {}
        self._told: set[str] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> int:
        """Start, follow, end; the exit code."""
        self._listen_to_signals()
        with self._progress:
            try:
                for center in self._layout.centers:
                    await self._start(center)
                await self._follow()
            finally:
                killed = await stop_all(self._children.values(), self._grace_s, self._hurry)
                self._tell_deaths()
                self._show()
            if killed:
                self._progress.say(f"killed, for they did not end: {', '.join(killed)}", warn=True)
        finished = all(child.exit_code == ExitCode.OK for child in self._children.values())
        if not finished and self._stop.is_set():
            self._progress.say("Stopped. The same command goes on where the centers stopped.")
        return 0 if finished else 1

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
                loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
            return
        self._stop.set()
        self._progress.say("stopping all centers; once more kills them at once", warn=True)

    async def _start(self, center: CenterConfig) -> None:
        if self._stop.is_set():
            return
        console = center.state_dir / "console.log"
        try:
            child = await start(center.id, self._command(center), console)
        except OSError as error:
            raise LaunchError(f"{center.id}: cannot be started: {error}") from error
        self._children[center.id] = child

    async def _follow(self) -> None:
        """Show what happens until all children have ended or a signal came."""
        ends = {asyncio.ensure_future(child.process.wait()) for child in self._children.values()}
        stop = asyncio.ensure_future(self._stop.wait())
        while ends and not self._stop.is_set():
            self._show()
            done, _ = await asyncio.wait(
                {*ends, stop},
                timeout=self._progress.period_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ends -= done
            self._tell_deaths()
        stop.cancel()

    def _tell_deaths(self) -> None:
        """Name, once, each center that ended otherwise than it should."""
        expected: set[int] = {ExitCode.OK}
        if self._stop.is_set():
            expected |= {ExitCode.STOPPED, -signal.SIGTERM, -signal.SIGKILL}
        for child in self._children.values():
            code = child.exit_code
            if code is None or code in expected or child.name in self._told:
                continue
            self._told.add(child.name)
            words = last_words(child.console)
            said = f"; its last words: {words}" if words else ""
            self._progress.say(f"{child.name}: {exit_meaning(code)}{said}", warn=True)

    def _show(self) -> None:
        self._progress.update([self._view(center) for center in self._layout.centers])

    def _view(self, center: CenterConfig) -> CenterView:
        status, child = _status(center), self._children.get(center.id)
        code = child.exit_code if child is not None else None
        phase = Phase.STARTING if status is None or status.phase is None else status.phase
        if status is not None and status.finished and phase == Phase.STOPPED:
            phase = "measuring"  # nobody is left to answer, the reports are being written
        if code is not None:
            phase = _ENDED.get(code) or exit_meaning(code, short=True)
        last = metric = ""
        if status is not None and status.validation is not None:
            last = ", ".join(status.partners_last) or "none"
            metric = f"{status.validation.metric} {status.validation.value:.3f}"
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


def last_words(console: Path) -> str:
    """The last line that a process printed; of a JSON log line its text. Empty if there is none."""
    with console.open("rb") as file:
        file.seek(max(0, console.stat().st_size - _CONSOLE_TAIL_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        line = json.loads(lines[-1])
    except json.JSONDecodeError:
        return lines[-1].strip()
    return str(line.get("text", lines[-1])) if isinstance(line, dict) else lines[-1].strip()
