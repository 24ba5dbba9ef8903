"""A center whose state lies on a small disk that fills up while it runs, or becomes read-only.

``unshare -rm python -m tests.support.small_disk full|read-only CENTER.TOML``

Within a mount namespace of its own, so that no rights are needed and nothing is left behind. Prints
one JSON object: how each start ended, what it said, and what was found afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from abps_node.audit.verify import verify
from abps_node.config import CenterConfig, load_center_config
from abps_node.store.reader import Reader
from tests.support.center_processes import CenterProcess
from tests.support.soundness import check_state, records

SIZE = "8m"


def available() -> bool:
    """Whether this system lets a process mount a disk of its own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def outcome(process: CenterProcess) -> dict[str, Any]:
    """How a start ended, and what it said at the end."""
    return {"code": process.wait_for_end(), "said": process.said()[-3000:]}


def fill(folder: Path) -> Path:
    """Take all that is left of the disk."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for block in (65536, 4096, 1):
            while True:
                try:
                    file.write(b"\0" * block)
                except OSError:
                    break
    return ballast


def full(center: CenterConfig) -> dict[str, Any]:
    """The disk fills up in the middle of a run, and is freed again."""
    first = CenterProcess(center)
    first.wait_for_round(3)
    ballast = fill(center.state_dir)
    ended = outcome(first)
    kept = len(records(center))
    fill(center.state_dir)  # what the end of the first has set free
    again = outcome(CenterProcess(center))
    ballast.unlink()
    check_state(center)
    last = outcome(CenterProcess(center))
    check_state(center)
    return {
        "ends": [ended, again, last],
        "kept": kept,
        "rounds": [record.round for record in records(center)],
        "broken": str(verify(center.state_dir).broken or ""),
        "notes": verify(center.state_dir).notes,
    }


def read_only(center: CenterConfig) -> dict[str, Any]:
    """The disk cannot be written any more when the center is started again after a crash."""
    first = CenterProcess(center)
    first.wait_for_round(2)
    first.close()
    remount = ["mount", "-o", "remount,ro", str(center.state_dir)]
    subprocess.run(remount, check=True)
    ended = outcome(CenterProcess(center))
    return {"ends": [ended], "kept": Reader(center.state_dir).status().last_round}


def main() -> None:
    """Mount, run, report."""
    what, path = sys.argv[1:]
    center = load_center_config(path)
    center.state_dir.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(center.state_dir)]
    subprocess.run(mount, check=True)
    print(json.dumps(full(center) if what == "full" else read_only(center)))


if __name__ == "__main__":
    main()
