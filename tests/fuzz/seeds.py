"""One valid frame of each message kind, to begin with: ``python -m tests.fuzz.seeds FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from protocol import codec
from tests.support.sample_messages import SAMPLES


def main() -> None:
    """Write the frames."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for message in SAMPLES:
        (folder / message.kind).write_bytes(codec.encode(message))


if __name__ == "__main__":
    main()
