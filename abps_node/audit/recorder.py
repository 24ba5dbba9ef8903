"""Writes down every stimulus of a center and what it decided, so that the run can be replayed.

One file per start of the center, begun with the memory that the start went on from. When a file
grows too long, another one is begun after the next committed round, with the whole state of the
center as it is then; the oldest files go when all together are longer than was asked for. So what
is left can always be replayed from its beginning.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from abps_node import __version__
from abps_node.audit.chain import file_name
from abps_node.audit.stimuli import FOLDER, FORMAT, entry, recordings
from abps_node.audit.values import Packer
from abps_node.config import CenterConfig
from abps_node.errors import StoreError, store_failure
from protocol.center import Center, Identity, Memory
from protocol.contract import Contract
from protocol.effects import CommitRound, Effect
from protocol.events import Event
from protocol.node import Node

PARTS: Final = 8
"""A file is an eighth of all that is kept, at most; then the next one begins."""
MEBIBYTE: Final = 1024 * 1024

_log = logging.getLogger(__name__)


class Recorder:
    """The recording of one start; raises ``StoreError`` when it cannot write."""

    def __init__(
        self,
        state_dir: Path,
        keep_bytes: int,
        contract: Contract,
        identity: Identity,
        roster: Iterable[str],
        memory: Memory,
    ) -> None:
        """Begin a new file; older ones beyond ``keep_bytes`` go."""
        self._state_dir = state_dir
        self._keep_bytes = keep_bytes
        self._identity = identity
        self._setting = (contract, identity, tuple(roster), memory)
        self._packer = Packer(self._blob)
        self._pending: list[bytes] = []
        self._names: set[bytes] = set()
        self._last: tuple[bytes, bytes] = (b"", b"")
        self._part, self._length, self._file = 0, 0, -1
        self._begin(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file that is written now."""
        name = file_name(self._identity.incarnation, self._part, "stimuli")
        return self._state_dir / FOLDER / name

    def stimulus(
        self, event: Event, now: float, effects: list[Effect] | None, center: Center
    ) -> None:
        """One stimulus and its effects; None if the decision ended in an error."""
        packed = self._packer.pack(event)
        done = None if effects is None else self._packer.pack(effects)
        self._write(entry("stimulus", now, packed, done))
        committed = effects is not None and any(isinstance(e, CommitRound) for e in effects)
        if committed and self._length * PARTS > self._keep_bytes:
            self.close()
            self._begin(center)

    def close(self) -> None:
        """Nothing is recorded any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, center: Center | None) -> None:
        self._part += 1
        self._names.clear()
        self._length = 0
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            dropped = self._make_room()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        setting = self._packer.pack(self._setting)
        state = None if center is None else self._packer.pack(center)
        about = (self._identity.center, self._identity.incarnation, self._part, __version__)
        self._write(entry("begin", FORMAT, *about, setting, state, dropped))

    def _make_room(self) -> list[str]:
        """Delete the oldest files until the rest and one more fit."""
        files = recordings(self._state_dir)
        lengths = [path.stat().st_size for path in files]
        dropped = []
        while files and sum(lengths) * PARTS > self._keep_bytes * (PARTS - 1):
            path = files.pop(0)
            lengths.pop(0)
            path.unlink()
            dropped.append(path.name)
        if dropped:
            text = f"recorded stimuli make room: {', '.join(dropped)} deleted"
            _log.info("%s", text, extra={"event": "stimuli-dropped"})
        return dropped

    def _blob(self, content: bytes) -> bytes:
        """Keep long bytes once in a file; returns their name."""
        known, name = self._last
        if known != content:
            name = hashlib.sha256(content).digest()
            self._last = content, name
        if name not in self._names:
            self._names.add(name)
            self._pending.append(entry("blob", name, content))
        return name

    def _write(self, last: bytes) -> None:
        """The blobs that came up, and the entry that needs them, in one go."""
        content = b"".join((*self._pending, last)) if self._pending else last
        self._pending.clear()
        try:
            written = os.write(self._file, content)
        except OSError as error:
            raise self._unwritable(error) from error
        self._length += written
        if written != len(content):
            raise self._unwritable(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def _unwritable(self, error: OSError) -> StoreError:
        text = f"{self.path}: stimuli cannot be recorded ({error.strerror})"
        return store_failure(text, error)


def make_node(
    config: CenterConfig, identity: Identity, roster: Iterable[str], memory: Memory
) -> Node:
    """The state machine of a center, recorded if center.toml asks for it."""
    contract, keep = config.federation.contract, config.record_stimuli * MEBIBYTE
    if not keep:
        return Node(contract, identity, roster, memory)
    recorder = Recorder(config.state_dir, keep, contract, identity, roster, memory)
    return RecordedNode(contract, identity, roster, memory, recorder)


def close_recording(node: Node) -> None:
    """Nothing more of this node is recorded, if it was."""
    if isinstance(node, RecordedNode):
        node.close()


class RecordedNode(Node):
    """A ``Node`` whose stimuli and decisions are written down."""

    def __init__(
        self,
        contract: Contract,
        identity: Identity,
        roster: Iterable[str],
        memory: Memory,
        recorder: Recorder,
    ) -> None:
        super().__init__(contract, identity, roster, memory)
        self._recorder = recorder

    def close(self) -> None:
        """Record nothing more."""
        self._recorder.close()

    def handle(self, event: Event, now: float) -> list[Effect]:
        """As of ``Node``; on disk before any effect is performed."""
        effects: list[Effect] | None = None
        try:
            effects = super().handle(event, now)
            return effects
        finally:
            self._recorder.stimulus(event, now, effects, self.center)
