"""Feeds recorded stimuli through ``protocol`` again and compares every decision.

The decisions depend on nothing else (``protocol.node``), so the same program gives the same
effects, byte for byte. The first difference is named down to the field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel

from abps_node import __version__
from abps_node.audit.stimuli import Recording, Stimulus, recordings
from abps_node.audit.values import Packer, UnknownValue, Unpacker
from abps_node.errors import ReplayDiffers
from protocol.center import Center
from protocol.effects import CommitRound, Effect
from protocol.node import Node

_SHOWN: Final = 120


@dataclass
class Replayed:
    """What was replayed, all of it with the same decisions."""

    files: int = 0
    starts: int = 0
    stimuli: int = 0
    effects: int = 0
    rounds: list[int] | None = None
    """First and last committed round; None if none was."""
    bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a difference is."""

    path: Path
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: stimulus {self.number}, {self.what}"


def replay(state_dir: Path) -> Replayed:
    """Replay all recorded files of a center, oldest first.

    ``ReplayDiffers`` names the first difference, or what is damaged.
    """
    done = Replayed()
    before: tuple[int, int, Node] | None = None
    for path in recordings(state_dir):
        try:
            before = _File(Recording(path), done).replay(before)
        except UnknownValue as error:
            raise ReplayDiffers(f"{path}: found what this program cannot read: {error}") from error
        done.files += 1
        done.bytes += path.stat().st_size
    return done


class _File:
    """One file of a recording."""

    def __init__(self, recording: Recording, done: Replayed) -> None:
        self._recording = recording
        self._done = done
        self._packer = Packer(_name_of)
        self._unpacker = Unpacker(lambda name: recording.blobs[name])

    def replay(self, before: tuple[int, int, Node] | None) -> tuple[int, int, Node]:
        """Replay it; ``before``: incarnation and part of the file before, and its last state."""
        begin, path = self._recording.begin, self._recording.path
        node = Node(*self._unpacker.unpack(begin.setting))
        if begin.part == 1:
            self._done.starts += 1
        if begin.program != __version__:
            text = f"{path.name}: recorded by version {begin.program}, replayed by {__version__}"
            self._done.notes += (text,)
        if begin.state is not None:
            node.center = self._unpacker.unpack(begin.state)
            if before is not None and before[:2] == (begin.incarnation, begin.part - 1):
                self._same_state(before[2].center, node.center)
        for stimulus in self._recording.stimuli():
            self._stimulus(node, stimulus)
        if self._recording.torn:
            note = f"{path.name}: {self._recording.torn} bytes at the end that a crash cut off"
            self._done.notes += (note,)
        return begin.incarnation, begin.part, node

    def _same_state(self, replayed: Center, recorded: Center) -> None:
        if self._packer.pack(replayed) != self._packer.pack(recorded):
            found = difference(recorded, replayed) or "the same fields in another order"
            raise ReplayDiffers(f"{self._recording.path}: the state at its beginning: {found}")

    def _stimulus(self, node: Node, stimulus: Stimulus) -> None:
        event = self._unpacker.unpack(stimulus.event)
        place = _Place(self._recording.path, stimulus.number, _what(event, node))
        try:
            effects = node.handle(event, stimulus.now)
        except Exception as error:
            if stimulus.effects is None:
                self._done.notes += (f"{place}: the same error as recorded, {error!r}",)
                return
            raise ReplayDiffers(f"{place}: found the error {error!r}, recorded: none") from error
        if stimulus.effects is None:
            raise ReplayDiffers(f"{place}: found no error, recorded: one that ended the center")
        if self._packer.pack(effects) != stimulus.effects:
            recorded = self._unpacker.unpack(stimulus.effects)
            raise ReplayDiffers(f"{place}: {_first_difference(recorded, effects)}")
        self._count(effects)

    def _count(self, effects: list[Effect]) -> None:
        self._done.stimuli += 1
        self._done.effects += len(effects)
        for effect in effects:
            if isinstance(effect, CommitRound):
                number = effect.record.round
                first = self._done.rounds[0] if self._done.rounds else number
                self._done.rounds = [first, number]


def _name_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _what(event: Any, node: Node) -> str:
    """The kind of an event, whom it is about, and the round."""
    words = [type(event).__name__]
    message = getattr(event, "message", None)
    if message is not None:
        words.append(message.kind)
    if getattr(event, "peer", None):
        words.append(f"of {event.peer}")
    return f"{' '.join(words)} in round {node.center.round.number}"


def _first_difference(recorded: list[Effect], replayed: list[Effect]) -> str:
    for number, (was, now) in enumerate(zip(recorded, replayed, strict=False), start=1):
        found = difference(was, now)
        if found:
            return f"effect {number}, {type(was).__name__}: {found}"
    kinds = [", ".join(type(e).__name__ for e in effects) for effects in (replayed, recorded)]
    return f"found {len(replayed)} effects ({kinds[0]}), recorded: {len(recorded)} ({kinds[1]})"


def difference(recorded: Any, replayed: Any, where: str = "") -> str:
    """The first field in which two values differ, as «field: found …, recorded: …»; else empty."""
    if type(recorded) is not type(replayed):
        return _differ(where, recorded, replayed)
    if isinstance(recorded, np.ndarray):
        same = recorded.tobytes() == replayed.tobytes()
        return "" if same else _differ(where, recorded, replayed)
    was, now = _parts(recorded), _parts(replayed)
    if was is None or now is None:
        same = recorded == replayed or (recorded != recorded and replayed != replayed)
        return "" if same else _differ(where, recorded, replayed)
    for key in was.keys() | now.keys() if was.keys() != now.keys() else was:
        name = f"{where}.{key}" if where else str(key)
        if key not in was or key not in now:
            return _differ(name, was.get(key, "nothing"), now.get(key, "nothing"))
        if found := difference(was[key], now[key], name):
            return found
    return ""


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """What a value consists of, by name; None for one without parts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {_key(key): part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return None


def _key(key: Any) -> str:
    return ",".join(sorted(map(str, key))) if isinstance(key, frozenset) else str(key)


def _differ(where: str, recorded: Any, replayed: Any) -> str:
    found, was = (_short(value) for value in (replayed, recorded))
    return f"{where or 'the whole'}: found {found}, recorded: {was}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
