"""A center that runs as ``abps run`` does, but computes slowly, or kills itself at one instant.

``python -m tests.support.odd_center CENTER.TOML --slow 20``
``python -m tests.support.odd_center CENTER.TOML --die-at weights --in-round 3``

Nothing in the product knows of this: the class or function at the chosen place is wrapped before
the daemon starts. SIGKILL leaves no time to clean up, as a power switch does.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from abps_node.cli.run import run_logged
from abps_node.config import load_center_config
from abps_node.learning import Learner, TrainResult
from abps_node.store import Store, models
from abps_node.transport import Transport
from protocol import codec
from protocol.effects import CommitRound
from protocol.messages import Weights

INSTANTS = ("intent", "weights", "model", "commit")
"""After a promise is durable and before it is said; after the own trunk went out and before the
other's is merged; after the model file and before its round; after the round and before anybody
hears of it."""


def compute_slowly(factor: float) -> None:
    """Let every local step take ``factor`` times the processor time that it uses."""
    train = Learner.train

    def slow(self: Learner, round: int) -> TrainResult:
        started = time.thread_time()
        result = train(self, round)
        time.sleep((factor - 1.0) * (time.thread_time() - started))
        return result

    Learner.train = slow  # type: ignore[method-assign]


def die_at(instant: str, in_round: int) -> None:
    """SIGKILL at the first such instant in this round or a later one."""
    owner: Any
    owner, name = {
        "intent": (Store, "save_sessions"),
        "weights": (Transport, "send"),
        "model": (models, "write_model"),
        "commit": (Store, "commit_round"),
    }[instant]
    original = getattr(owner, name)

    def deadly(*arguments: Any) -> Any:
        result = original(*arguments)
        if _round_of(arguments) >= in_round:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def _round_of(arguments: tuple[Any, ...]) -> int:
    """The own round that a call at one of the instants is about; 0 for one that is no such call."""
    match arguments:
        case (Store(), CommitRound(record=record)):
            return int(record.round)
        case (Store(), rows):
            return max(int(row.round) for row in rows)
        case (Transport(), str(), bytes(frame)):
            message = codec.decode(frame, len(frame))
            return message.round if isinstance(message, Weights) else 0
        case (Path(), int(number), *_):
            return number
        case _:
            raise TypeError(f"no instant of death has the arguments {arguments!r}")


def main() -> int:
    """Run the center; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("center", type=Path)
    parser.add_argument("--slow", type=float)
    parser.add_argument("--die-at", choices=INSTANTS)
    parser.add_argument("--in-round", type=int, default=1)
    options = parser.parse_args()
    if options.slow is not None:
        compute_slowly(options.slow)
    if options.die_at is not None:
        die_at(options.die_at, options.in_round)
    return run_logged(load_center_config(options.center))


if __name__ == "__main__":
    sys.exit(main())
