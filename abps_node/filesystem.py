"""Which file system a path lies on, and whether only this machine uses it.

SQLite's write-ahead log needs memory that all its processes share, so it works on a local disk
only. Which file systems are local is a list; every other one is taken for shared, since the mistake
costs speed that way round, and the state the other way.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

MOUNTS = Path("/proc/self/mountinfo")
"""What Linux says about mounts. Elsewhere nothing is known, and disks are taken for local."""

LOCAL: Final = frozenset(
    (
        *("bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk"),
        *("hfsplus", "iso9660", "jfs", "msdos", "nilfs2", "ntfs3", "overlay", "ramfs"),
        *("reiserfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zfs"),
    )
)
"""Names of file systems of one machine, as the kernel has them."""
_TYPE_AFTER: Final = " - "
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def file_system(path: Path) -> str | None:
    """The kernel's name of it (``ext4``, ``nfs4``, ``lustre``, …); None where it is not known.

    The path need not exist.
    """
    path = path.absolute()
    with suppress(OSError):
        path.stat()  # an automatic mount appears when it is touched
    path = path.resolve()
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    best, found = -1, None
    for line in lines:
        before, separator, after = line.rpartition(_TYPE_AFTER)
        if not separator:
            continue
        mounted = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4]))
        depth = len(mounted.parts)
        if depth >= best and path.is_relative_to(mounted):  # a later mount hides an earlier one
            best, found = depth, after.split(" ")[0]
    return found


def shared_file_system(path: Path) -> str | None:
    """The name of the file system if other machines may use it too; None for a local one."""
    name = file_system(path)
    return None if name is None or name in LOCAL else name


def sync_directory(directory: Path) -> None:
    """Make what was created or renamed in it durable. Raises ``OSError``."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
