"""Every center of a federation at one moment, whatever its state is like.

A center whose file is faulty, or whose state is locked, damaged or not there yet, never hides the
others: it has a problem, or no status, and that is all that can be said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from abps_node.config import CenterConfig
from abps_node.errors import StoreError
from abps_node.store.reader import NoState, Reader
from abps_node.store.views import PeerView, RoundHead, Status
from launch.console import CONSOLE_NAME, last_words
from launch.layout import FederationLayout

PATIENCE_S: Final = 0.5
"""How long a state that somebody holds is waited for; the file says so if that was too short."""
_AT_ONCE: Final = 8
"""States that are waited for at the same time."""
T = TypeVar("T")


@dataclass(frozen=True)
class Hearsay:
    """What the others' states say of a center."""

    seen: float | None = None
    """When one of them last heard it; wall clock seconds."""
    suspected: int = 0
    """How many running centers take it for silent."""
    of: int = 0
    """How many running centers there are beside it."""


@dataclass(frozen=True)
class Look:
    """One center at one moment."""

    id: str
    status: Status | None
    """None without a state, and with one that cannot be read."""
    problem: str | None = None
    """Why its file or its state cannot be read."""
    heads: tuple[RoundHead, ...] = ()
    """Its committed rounds, oldest first."""
    heard: float | None = None
    """When it last heard any other center."""
    hearsay: Hearsay = Hearsay()
    last_words: str = ""
    """What its process printed last, beside its log."""
    reports_due: tuple[str, ...] = ()
    """Test reports that a finished center has."""

    @property
    def seen(self) -> float | None:
        """The newest sign of life, its own or one that others saw; wall clock seconds."""
        own = () if self.status is None else _signs(self.status)
        signs = (*own, self.heard, self.hearsay.seen)
        return max((at for at in signs if at is not None), default=None)


def look_at(layout: FederationLayout) -> list[Look]:
    """All centers as they are now, in order of their ids."""
    read = each_state(layout.centers, _read)
    views = {center: found.peers for center, found in read.items() if isinstance(found, _Read)}
    alive = {c for c, found in read.items() if isinstance(found, _Read) and found.is_running}
    told = gathered(views, alive)
    looks = [_look(center, read[center.id], told) for center in layout.centers]
    looks += [Look(folder, None, problem) for folder, problem in layout.broken.items()]
    return sorted(looks, key=lambda look: look.id)


def each_state(
    centers: Sequence[CenterConfig], read: Callable[[Reader], T]
) -> dict[str, T | StoreError]:
    """Center to what ``read`` finds in its state, or why that cannot be read."""

    def attempt(center: CenterConfig) -> T | StoreError:
        try:
            return read(Reader(center.state_dir, PATIENCE_S))
        except StoreError as error:
            return error
        except OSError as error:  # a folder of somebody else
            return StoreError(f"{center.state_dir}: cannot be read: {error.strerror}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(attempt, centers)
        return {center.id: each for center, each in zip(centers, found, strict=True)}


def readable(found: Mapping[str, T | StoreError]) -> tuple[dict[str, T], dict[str, str]]:
    """What could be read, and what is wrong with the rest; who has not begun is in neither."""
    good: dict[str, T] = {}
    bad: dict[str, str] = {}
    for center, each in found.items():
        if not isinstance(each, StoreError):
            good[center] = each
        elif not isinstance(each, NoState):
            bad[center] = str(each)
    return good, bad


def gathered(views: Mapping[str, Sequence[PeerView]], running: set[str]) -> dict[str, Hearsay]:
    """What of each center the others' states say; only running ones count as suspecting."""
    seen: dict[str, float] = {}
    suspected: dict[str, int] = {}
    for center, peers in views.items():
        for view in peers:
            if view.last_seen is not None and view.peer != center:
                seen[view.peer] = max(view.last_seen, seen.get(view.peer, view.last_seen))
            if view.status == "suspect" and center in running:
                suspected[view.peer] = suspected.get(view.peer, 0) + 1
    names = {view.peer for peers in views.values() for view in peers} | set(views)
    return {
        name: Hearsay(seen.get(name), suspected.get(name, 0), len(running - {name}))
        for name in names
    }


@dataclass(frozen=True)
class _Read:
    status: Status
    heads: tuple[RoundHead, ...]
    peers: tuple[PeerView, ...]

    @property
    def is_running(self) -> bool:
        return self.status.condition in ("running", "elsewhere")


def _read(reader: Reader) -> _Read:
    return _Read(reader.status(), tuple(reader.heads()), tuple(reader.peers()))


def _look(center: CenterConfig, found: _Read | StoreError, told: Mapping[str, Hearsay]) -> Look:
    hearsay = told.get(center.id, Hearsay())
    words = _last_words(center)
    due = ("federated", "alone") if center.compare_alone else ("federated",)
    if isinstance(found, NoState):
        return Look(center.id, None, hearsay=hearsay, last_words=words)
    if isinstance(found, StoreError):
        return Look(center.id, None, str(found), hearsay=hearsay, last_words=words)
    heard_at = max((view.last_seen for view in found.peers if view.last_seen), default=None)
    return Look(center.id, found.status, None, found.heads, heard_at, hearsay, words, due)


def _last_words(center: CenterConfig) -> str:
    try:
        return last_words(center.state_dir / CONSOLE_NAME)
    except OSError:
        return ""


def _signs(status: Status) -> tuple[float | None, ...]:
    event = None if status.last_event is None else status.last_event.at
    return (status.started, status.ended, status.phase_since, status.last_round_at, event)
