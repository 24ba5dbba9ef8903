"""File systems that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node import filesystem


def mount_line(place: str | Path, kind: str) -> str:
    """A line of ``/proc/self/mountinfo``."""
    return f"99 1 0:42 / {place} rw,relatime shared:1 - {kind} server:/export rw\n"


def pretend(monkeypatch: pytest.MonkeyPatch, place: Path, kind: str) -> None:
    """As if a file system of this kind were mounted at ``place``; holds in forked processes too."""
    mounts = place.parent / f"{place.name}.mountinfo"
    mounts.write_text(mount_line("/", "ext4") + mount_line(place, kind), encoding="utf-8")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
