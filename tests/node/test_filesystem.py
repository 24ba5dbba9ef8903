"""Which file system a path lies on, from what the kernel says about mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node import filesystem
from abps_node.filesystem import file_system, shared_file_system
from tests.support.mounts import mount_line

SHARED = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "fuse.sshfs", "9p")


def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> None:
    file = tmp_path / "mountinfo"
    file.write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(filesystem, "MOUNTS", file)


@pytest.mark.parametrize("kind", SHARED)
def test_network_file_systems_and_unknown_ones_are_shared(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(monkeypatch, tmp_path, mount_line("/", "ext4"), mount_line("/scratch", kind))
    assert shared_file_system(Path("/scratch/fed/state")) == kind
    assert shared_file_system(Path("/scratches")) is None


def test_the_deepest_and_latest_mount_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        mount_line("/", "overlay"),
        mount_line("/data/local", "xfs"),
        mount_line("/data", "nfs4"),
        mount_line("/data", "lustre"),
        mount_line("/data/my\\040disk", "ext4"),
    ]
    mounts(monkeypatch, tmp_path, *lines)
    assert file_system(Path("/")) == "overlay"
    assert file_system(Path("/data/x")) == "lustre"
    assert file_system(Path("/data/local/x")) == "xfs"
    assert file_system(Path("/data/my disk/x")) == "ext4"


def test_a_link_is_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "far", tmp_path / "near"
    target.mkdir()
    link.symlink_to(target)
    mounts(monkeypatch, tmp_path, mount_line("/", "ext4"), mount_line(target, "nfs4"))
    assert file_system(link / "state") == "nfs4"


def test_nothing_is_known_where_the_kernel_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "absent")
    assert file_system(tmp_path) is None
    assert shared_file_system(tmp_path) is None


@pytest.mark.skipif(not filesystem.MOUNTS.exists(), reason="only Linux has it")
def test_what_this_machine_says_is_understood() -> None:
    assert file_system(Path("/proc/self")) == "proc"
