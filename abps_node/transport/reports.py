"""What the transport counts, and how it tells of trouble without flooding anybody's log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from abps_node.transport.overhead import wire_bytes

Report = Callable[[str | None, str, str], None]
"""Called with the peer's id or None, a short reason, and a sentence for people."""


@dataclass
class PeerCounters:
    """Frames and bytes exchanged with one peer since the start."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    """Frame bytes, before any framing."""
    bytes_out: int = 0
    """Frame bytes that were handed to a connection."""
    wire_in: int = 0
    """The same with ZMTP and CURVE framing (``transport.overhead``)."""
    wire_out: int = 0
    connections_lost: int = 0
    """Connections through which the peer was heard and which then ended, for whatever reason."""


@dataclass
class Counters:
    """Everything that the transport counts. Read it at any time, never write it."""

    peers: dict[str, PeerCounters] = field(default_factory=dict)
    refused_handshakes: Counter[str] = field(default_factory=Counter)
    """Connections that were refused before they could say anything, by reason."""
    dropped_frames: Counter[str] = field(default_factory=Counter)
    """Messages that came but did not reach the application, by reason."""
    cut_connections: Counter[str] = field(default_factory=Counter)
    """Connections that this side ended, by reason."""
    opened_connections: int = 0
    """Connections that this side began to open; libzmq opens each again as often as it breaks."""
    idle_connections: int = 0
    """Of these, closed since nothing went through them for long."""

    def peer(self, peer: str) -> PeerCounters:
        """The counters of one peer."""
        found = self.peers.get(peer)
        if found is None:
            found = self.peers[peer] = PeerCounters()
        return found

    def received(self, peer: str, frame_bytes: int, curve: bool) -> None:
        """Count a frame that reached the application."""
        counters = self.peer(peer)
        counters.frames_in += 1
        counters.bytes_in += frame_bytes
        counters.wire_in += wire_bytes(frame_bytes, curve)

    def sent(self, peer: str, frame_bytes: int, curve: bool) -> None:
        """Count a frame that was handed to a connection."""
        counters = self.peer(peer)
        counters.frames_out += 1
        counters.bytes_out += frame_bytes
        counters.wire_out += wire_bytes(frame_bytes, curve)


class Throttle:
    """Passes at most one report per peer and reason in ``every_s``; counts what it holds back."""

    def __init__(self, report: Report, every_s: float) -> None:
        self._report = report
        self._every_s = every_s
        self._last: dict[tuple[str | None, str], float] = {}
        self._held_back: Counter[tuple[str | None, str]] = Counter()

    def __call__(self, peer: str | None, reason: str, detail: str) -> None:
        """Report now, or remember that there was one more."""
        key = (peer, reason)
        now = time.monotonic()
        last = self._last.get(key)
        if last is not None and now - last < self._every_s:
            self._held_back[key] += 1
            return
        self._last[key] = now
        more = self._held_back.pop(key, 0)
        self._report(peer, reason, f"{detail} (and {more} more before)" if more else detail)
