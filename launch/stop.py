"""`abps launch stop`: end what runs a federation, cleanly, and say what happened."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from abps_node.cli.human import count
from abps_node.config import CenterConfig
from abps_node.store.process import liveness, start_mark, this_host
from abps_node.store.views import Status
from launch import running, slurm_queue
from launch.layout import FederationLayout
from launch.running import Supervising
from launch.supervisor import STOP_GRACE_PER_CENTER_S, STOP_GRACE_S
from launch.view.reading import each_state, readable

SPARE_S: Final = 15.0
"""After the supervisor's own grace, in which it kills what does not end."""
POLL_S: Final = 0.2


@dataclass
class Stop:
    """One attempt; ``say`` is told each thing that happens."""

    layout: FederationLayout
    say: Callable[[str], None]
    wait_s: float | None = None
    """How long to wait for each; None: what a supervisor of so many centers may need."""
    _left: list[str] = field(default_factory=list)

    def run(self) -> bool:
        """Whether nothing of the federation runs any more, as far as can be seen from here."""
        records = running.supervisors(self.layout.directory)
        before = len(self._running())
        for problem in self.layout.broken.values():
            self.say(f"{problem}; under a supervisor it ends with the others")
        acted = self._jobs(records)
        acted |= self._supervisors([entry for entry in records if entry[1].job is None])
        acted |= self._orphans()
        if acted:
            self._sum_up(before)
        elif not self._left:
            self.say("Nothing of this federation runs here.")
        return not self._left

    # Jobs ---------------------------------------------------------------------------------------

    def _jobs(self, records: Sequence[tuple[Path, Supervising]]) -> bool:
        """End the jobs of this directory; whether there was one."""
        numbers = {entry.job: path for path, entry in running.jobs(self.layout.directory)}
        tasks = {entry.job for _, entry in records if entry.job is not None}
        acted = False
        for job in sorted({*numbers, *tasks}):
            ended = self._job(job)
            acted |= ended
            if ended and job in numbers:
                numbers[job].unlink(missing_ok=True)
        return acted

    def _job(self, job: str) -> bool:
        queued = slurm_queue.look(job)
        if queued is None:
            self._keep(f"job {job}: Slurm does not answer here; on a login node: scancel {job}")
            return False
        if not queued.state:
            for path, entry in running.jobs(self.layout.directory):
                if entry.job == job:
                    path.unlink(missing_ok=True)
            return False
        if not queued.belongs_to(self.layout.directory):
            self._keep(
                f"job {job}: runs {queued.command} in {queued.folder}, which is not this federation"
            )
            return False
        refusal = slurm_queue.cancel(job)
        if refusal:
            self._keep(f"job {job}: not cancelled: {refusal}")
            return False
        if not _until(lambda: not _state(job), self._grace_s()):
            self._keep(f"job {job}: is still {_state(job)} {self._grace_s():.0f} s after scancel")
            return False
        self.say(f"job {job}: cancelled, was {queued.state}")
        return True

    # Supervisors --------------------------------------------------------------------------------

    def _supervisors(self, records: Iterable[tuple[Path, Supervising]]) -> bool:
        """End those of this host; whether there was one."""
        acted = False
        for path, entry in records:
            match entry.liveness():
                case "dead":
                    path.unlink(missing_ok=True)
                    self.say(f"supervisor {entry.pid}: was gone already, without a word")
                case "elsewhere":
                    self._keep(
                        f"supervisor {entry.pid}: runs on {entry.host}, if at all; this is "
                        f"{this_host()}: give the same command there"
                    )
                case "alive":
                    acted |= self._end(f"supervisor {entry.pid}", entry.pid, entry.mark)
        return acted

    def _orphans(self) -> bool:
        """End centers that run on this host under no supervisor; whether there was one."""
        acted = False
        for center, status in self._running():
            pid = status.pid
            if pid is not None:
                acted |= self._end(f"{center.id}, process {pid}", pid, start_mark(pid))
        return acted

    def _end(self, name: str, pid: int, mark: str | None) -> bool:
        """SIGTERM, and wait; whether it has ended."""
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return True
        except PermissionError:
            self._keep(f"{name}: belongs to another user; nothing was done")
            return False
        here = this_host()
        if _until(lambda: liveness(pid, mark, here) == "dead", self._grace_s()):
            self.say(f"{name}: ended")
            return True
        self._keep(f"{name}: still runs {self._grace_s():.0f} s after SIGTERM")
        return False

    # What was and what is -----------------------------------------------------------------------

    def _running(self) -> list[tuple[CenterConfig, Status]]:
        found, _ = readable(each_state(self.layout.centers, lambda reader: reader.status()))
        centers = {center.id: center for center in self.layout.centers}
        return [
            (centers[name], status)
            for name, status in found.items()
            if status.condition == "running"
        ]

    def _sum_up(self, before: int) -> None:
        found, bad = readable(each_state(self.layout.centers, lambda reader: reader.status()))
        tally: dict[str, int] = {}
        for status in found.values():
            tally[status.condition] = tally.get(status.condition, 0) + 1
        words = ", ".join(f"{n} {word}" for word, n in sorted(tally.items()))
        unread = f", {len(bad)} unreadable" if bad else ""
        verb = "was" if before == 1 else "were"
        was = f"{count(before, 'center')} {verb} running"
        self.say(f"{was}; now: {words or 'none has a state'}{unread}")

    def _keep(self, text: str) -> None:
        self._left.append(text)
        self.say(text)

    def _grace_s(self) -> float:
        if self.wait_s is not None:
            return self.wait_s
        return STOP_GRACE_S + STOP_GRACE_PER_CENTER_S * len(self.layout.centers) + SPARE_S


def _state(job: str) -> str:
    queued = slurm_queue.look(job)
    return "unknown" if queued is None else queued.state


def _until(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
