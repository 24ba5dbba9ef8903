"""How long Table 1 takes on the International Stroke Trial: all rows and seeds, on all cores.

Needs the data (``ABPS_DATA_DIR``). Prints a line per cell and, as its last line, one JSON object:
``seconds`` of wall time for all rows; ``seconds_paper_rows``, the part of it that the 20 rows of
the paper's own table took (seconds of their cells over the number of processes, which idle only at
the very end); ``cells``, ``cores`` and ``seconds_by_row``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from sim.sweep import plan, read_experiment, sweep

BESIDE = ("random-matching", "abps-live")
"""Rows that stand beside the paper's begin like this."""
EXPERIMENT = Path(__file__).parents[1] / "sim" / "experiments" / "table1.toml"


def main() -> None:
    """Run and time the sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ist")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: the experiment's five")
    parser.add_argument("--rows", nargs="+", help="default: all")
    parser.add_argument("--jobs", type=int, help="processes; default: all cores")
    parser.add_argument("--out", type=Path, help="keep the results here; default: nowhere")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(
            read_experiment(EXPERIMENT),
            options.out or Path(folder),
            options.data,
            seeds=options.seeds,
            rows=options.rows,
        )
        began = time.perf_counter()
        results = sweep(planned, options.jobs, told)
        took = time.perf_counter() - began
    by_row: dict[str, float] = defaultdict(float)
    for each in results:
        by_row[each["name"]] += each["seconds"]
    jobs = min(options.jobs or len(os.sched_getaffinity(0)), len(results))
    of_paper = [value for name, value in by_row.items() if not name.startswith(BESIDE)]
    print(
        json.dumps(
            {
                "data": options.data,
                "seconds": round(took, 1),
                "seconds_paper_rows": round(sum(of_paper) / jobs, 1),
                "cells": len(results),
                "cores": len(os.sched_getaffinity(0)),
                "seconds_by_row": {name: round(value, 1) for name, value in by_row.items()},
            }
        )
    )


def told(result: dict[str, object], done: int, most: int) -> None:
    """One line per cell."""
    print(
        f"{done}/{most} {result['name']}, seed {result['seed']}: {result['seconds']} s", flush=True
    )


if __name__ == "__main__":
    main()
