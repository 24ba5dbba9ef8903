"""The long campaign: ``python -m tests.chaos.campaign``, as ``make chaos`` does."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.chaos.harness import Chaos


def main() -> None:
    """Run one campaign and print its figures; what does not hold is an AssertionError."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--centers", type=int, default=12)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every-s", type=float, default=0.5, help="mean time between faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="new folder for the federation, kept afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        directory = options.keep or Path(scratch) / "federation"
        with Chaos(directory, options.centers, options.rounds, options.seed) as chaos:
            try:
                chaos.wait_for_round(1)
                chaos.run(options.faults, options.every_s)
                print(f"all faults are done, the rest runs to its end: {chaos.state()}", flush=True)
                chaos.finish(wait_s=900)
                figures = chaos.check()
            finally:
                print("\n".join(chaos.log))
    print(json.dumps({"seed": options.seed, **figures}, indent=2))


if __name__ == "__main__":
    main()
