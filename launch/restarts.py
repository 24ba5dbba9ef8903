"""Whether a center that ended is started again, and when: its exit code decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from abps_node.exits import AFTER_A_CHANGE, NEVER_AGAIN, ExitCode

FINAL: Final = frozenset(
    # Asked for; and a port written out in a federation of one machine stays with who holds it.
    {ExitCode.OK, ExitCode.USAGE, ExitCode.STOPPED, ExitCode.BIND, *AFTER_A_CHANGE, *NEVER_AGAIN}
)
"""Ends that the same start would only repeat, or that were asked for."""


@dataclass(frozen=True)
class RestartPolicy:
    """How often a crashed center is started again, and how patiently."""

    tries: int = 5
    """Restarts in a row before the center is given up."""
    first_s: float = 1.0
    """Before the first restart; doubled for each further one."""
    longest_s: float = 30.0
    steady_s: float = 60.0
    """A center that ran so long has got over what was before: counting begins anew."""

    def delay_s(self, crashes: int) -> float:
        """The wait after the n-th crash in a row (from 1)."""
        return float(min(self.longest_s, self.first_s * 2 ** (crashes - 1)))


class Crashes:
    """The crashes of one center in a row."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.in_a_row = 0

    def next_start_s(self, code: int, ran_s: float) -> float | None:
        """Seconds until the next start; None if there is none: final, or given up."""
        if code in FINAL:
            return None
        self.in_a_row = 1 if ran_s >= self._policy.steady_s else self.in_a_row + 1
        if self.in_a_row > self._policy.tries:
            return None
        return self._policy.delay_s(self.in_a_row)
