"""The work that public_simulators.py gives to every contestant, and the clock that times it.

A contestant is a program of its own: ``python public_X.py FOLDER``. It finds the patients, the
initial weights and the settings in FOLDER, ends each round with ``Clock.lap``, and leaves its
laps and its logits on the test rows there. It needs nothing of this project but this module.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """All centers' patients, and what is to be done with them."""

    folder: Path
    x: torch.Tensor
    """Training rows of all centers, one after another, ``(N, d)``."""
    y: torch.Tensor
    """Their labels, ``(N, 1)``."""
    start: list[int]
    """Row at which each center begins, and N."""
    test: torch.Tensor
    """Test rows of all centers, ``(M, d)``."""
    initial: torch.Tensor
    """All weights of the network before round 1, flat, in the order of its parameters."""
    settings: dict[str, Any]
    """rounds, epochs, batch_size, learning_rate, weight_decay, dropout, hidden."""

    @staticmethod
    def read(folder: Path) -> Work:
        """What public_simulators.py wrote there."""
        with np.load(folder / "work.npz") as held:
            arrays = {name: torch.from_numpy(held[name]) for name in held.files}
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        start = arrays.pop("start").tolist()
        return Work(folder, start=start, settings=settings, **arrays)

    @property
    def centers(self) -> int:
        """How many there are."""
        return len(self.start) - 1

    def patients(self, center: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Training rows and labels of one center: views."""
        rows = slice(self.start[center], self.start[center + 1])
        return self.x[rows], self.y[rows]

    def network(self) -> nn.Sequential:
        """The network with its initial weights."""
        layers: list[nn.Module] = []
        wide = self.x.shape[1]
        for narrow in self.settings["hidden"]:
            layers += [nn.Linear(wide, narrow), nn.ReLU(), nn.Dropout(self.settings["dropout"])]
            wide = narrow
        network = nn.Sequential(*layers, nn.Linear(wide, 1))
        vector_to_parameters(self.initial, network.parameters())
        return network

    def adam(self, network: nn.Module) -> torch.optim.Adam:
        """A fresh optimizer."""
        rate, decay = self.settings["learning_rate"], self.settings["weight_decay"]
        return torch.optim.Adam(network.parameters(), lr=rate, weight_decay=decay)

    def leave(self, clock: Clock, logits: torch.Tensor, **versions: str) -> None:
        """Write down what came of it."""
        np.save(self.folder / "logits.npy", logits.detach().numpy().reshape(-1))
        told = {"laps": clock.laps, "versions": {"torch": torch.__version__, **versions}}
        (self.folder / "told.json").write_text(json.dumps(told), encoding="utf-8")

    def score(self, network: nn.Module) -> torch.Tensor:
        """Logits of the test rows."""
        network.eval()
        with torch.no_grad():
            return network(self.test)


class Clock:
    """Wall and processor time of this process and of all that it started, at the end of rounds."""

    def __init__(self) -> None:
        self.laps: list[tuple[float, float]] = []
        """Monotonic clock and processor seconds since birth, without the time of counting."""
        self._counting = (0.0, 0.0)

    def lap(self) -> None:
        """A round ends, or the first begins."""
        wall, own = time.monotonic(), time.process_time()
        self.laps.append((wall - self._counting[0], own - self._counting[1] + descendants_cpu()))
        self._counting = (
            self._counting[0] + time.monotonic() - wall,
            self._counting[1] + time.process_time() - own,
        )


def descendants_cpu() -> float:
    """Processor seconds of all living descendants, and of theirs that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text(encoding="ascii", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            fields = text.rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    me = os.getpid()
    return sum(ticks[pid] for pid in parents if pid != me and _descends(pid, me, parents)) / _TICK


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def folder_told() -> Path:
    """The folder that the command line names."""
    return Path(sys.argv[1])
