"""Byte accounts between two writes to the store: per peer, direction and message kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from abps_node.transport.overhead import wire_bytes

Key = tuple[str, str, str]


@dataclass
class Traffic:
    """Counts messages, frame bytes, and bytes on the wire with the documented framing."""

    curve: bool
    counts: dict[Key, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, peer: str, direction: str, kind: str, frame_bytes: int) -> None:
        """Count one frame; ``direction`` is ``in`` or ``out``."""
        key = (peer, direction, kind)
        messages, frames, wire = self.counts.get(key, (0, 0, 0))
        on_wire = wire_bytes(frame_bytes, self.curve)
        self.counts[key] = (messages + 1, frames + frame_bytes, wire + on_wire)

    def drain(self) -> dict[Key, tuple[int, int, int]]:
        """The counts since the last drain."""
        counts, self.counts = self.counts, {}
        return counts
