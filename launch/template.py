"""The process that centers are forked from: everything imported and run once, one thread, frozen.

Importing torch and its company takes a process a second and 150 MiB, its first optimizer step
another second and 70 MiB. All that happens once, before the forks, and its pages are shared by all
children. A fork copies one thread only, so nothing here may have started a second: no ZeroMQ
context, no thread pool of numpy or Arrow.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abps_node.errors import NodeError

if TYPE_CHECKING:
    import pyarrow

    from protocol.contract import Contract

_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # One of Arrow's allocators starts a thread when it is imported, whether it is used or not.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_MALLOC: Final = {
    # Else glibc gives every thread of every center a heap of its own, …
    -8: 1,  # M_ARENA_MAX
    # … and, once a large block was freed, puts the next ones onto the heap, where they leave holes.
    -3: 128 * 1024,  # M_MMAP_THRESHOLD
    -1: 128 * 1024,  # M_TRIM_THRESHOLD
}
_HOLES: Final = (*(2**power for power in range(17, 9, -1)), *range(1008, 23, -16))
"""Sizes of free blocks (bytes), largest first, up to where every size has a list of its own."""
_ROWS: Final = 200
_USUAL_LOG_LEVEL: Final = "info"
"""Of a center that names none: what it finds set it need not set."""
_THREADS: Final = Path("/proc/self/task")


class TemplateError(NodeError):
    """This process cannot be forked from."""


def single_threaded() -> None:
    """Tell numerical libraries to start no threads; of use only before they are imported."""
    os.environ.update(_ENVIRONMENT)


def warm_up(contract: Contract) -> None:
    """Import what a center needs and take every path of it once, then freeze the heap.

    Raises ``TemplateError`` if that has left more than one thread.
    """
    single_threaded()
    _thrifty_malloc()
    import torch

    torch.set_num_threads(1)
    _throw_away_round(contract)
    from abps_node import daemon, logs  # noqa: F401 - what the children run
    from abps_node.cli import run  # noqa: F401
    from abps_node.discovery import directory  # noqa: F401

    logs.set_levels(_USUAL_LOG_LEVEL)
    threads = _count_threads()
    if threads != 1:
        raise TemplateError(
            f"found {threads} threads in the process that centers are forked from, allowed: one; "
            "start it as `abps launch local`"
        )
    gc.collect()
    gc.freeze()
    _fill_holes()


def _throw_away_round(contract: Contract) -> None:
    """Reading, a local step, a merge, a report: all lazy imports happen here."""
    import pyarrow.parquet

    from abps_node.aims import Aims, label_alone
    from abps_node.data import load_center
    from abps_node.learning import make_learner

    # As every center does whose trunk is not the perceptron's.
    aims = None if contract.model.kind == "mlp" else Aims((label_alone(contract),))
    with tempfile.TemporaryDirectory() as folder:
        patients = Path(folder) / "made-up.parquet"
        pyarrow.parquet.write_table(_made_up(contract), patients)
        data = load_center(contract, "template", patients, aims)
    learner = make_learner(contract, data, 0, aims)
    trunk = learner.train(1).trunk
    learner.merge(1, {"partner": trunk}, {"partner": 0.5}, [frozenset(), frozenset({"partner"})])
    learner.load_state_tensors(learner.state_tensors())
    learner.test_report()


def _made_up(contract: Contract) -> pyarrow.Table:
    """Patients without a meaning, who fit the contract."""
    import pyarrow

    rows = range(_ROWS)
    data = contract.data
    columns: dict[str, list[Any]] = {data.label: [row % 2 for row in rows]}
    for feature in data.features:
        if feature.levels is not None:
            levels = feature.levels
            columns[feature.name] = [levels[row % len(levels)] for row in rows]
        else:
            cycle = 2 if feature.kind == "binary" else 7
            columns[feature.name] = [float(row // 2 % cycle) for row in rows]
    if data.group is not None:
        columns[data.group] = [str(row) for row in rows]
    if data.date is not None:
        columns[data.date] = ["2015"] * _ROWS
    return pyarrow.table(columns)


def _thrifty_malloc() -> None:
    """Memory that a center does not use goes back to the system."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            for option, value in _MALLOC.items():
                mallopt(option, value)


def _fill_holes() -> None:
    """Use up what is free between the blocks of the heap, for good.

    Every child would put its first objects there, and copy a whole page for a few bytes each time:
    3 MiB a center. What it finds instead is the end of the heap, where pages are its own anyway.
    """
    libc = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(libc, "malloc_trim"):
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, (ctypes.c_ssize_t,)
    libc.malloc_trim(0)
    end = libc.sbrk(0) - 2 * os.sysconf("SC_PAGE_SIZE")  # trimmed, so nearly all below is in use
    for size in _HOLES:
        while (block := libc.malloc(size)) and block < end:
            pass
        libc.free(block)


def _count_threads() -> int:
    return len(list(_THREADS.iterdir())) if _THREADS.is_dir() else 1
