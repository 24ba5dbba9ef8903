"""Where a center tells what it does, for people who watch from outside."""

from __future__ import annotations

from typing import Protocol

from protocol.effects import CommitRound, Note


class EventSink(Protocol):
    """Hears of every note and every committed round, in the order in which they happen.

    Called from the daemon's event loop between two effects: an implementation returns at once and
    never fails. It decides by a list of its own what leaves the center, for what it is handed
    holds more than others should know.
    """

    def note(self, note: Note, round: int) -> None:
        """Something was noted in this round."""

    def committed(self, commit: CommitRound) -> None:
        """A round is durable."""


class NoEvents:
    """Tells nobody."""

    def note(self, note: Note, round: int) -> None:
        """Nothing."""

    def committed(self, commit: CommitRound) -> None:
        """Nothing."""
