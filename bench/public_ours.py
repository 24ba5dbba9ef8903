"""A contestant of public_simulators.py: this project's simulator."""

from __future__ import annotations

import numpy as np
import torch
from made_centers import contract_of, made_centers, seeds_of
from public_work import Clock, Work, folder_told

from abps_node import __version__
from sim.engine import BatchedEngine
from sim.methods import METHODS


def main() -> None:
    """FedAvg on the batched engine; rounds as ``sim.runner`` plays them, without evaluation."""
    work = Work.read(folder_told())
    entry = METHODS["fedavg"]
    contract = contract_of({**entry.policy, "rounds": work.settings["rounds"]})
    centers = made_centers(contract, np.diff(work.start))
    threads = work.settings["threads"]
    engine = BatchedEngine(contract, centers, seeds_of(centers), threads=threads)
    method = entry.make()
    state = method.init(engine, 11)
    clock = Clock()
    clock.lap()
    for t in range(1, work.settings["rounds"] + 1):
        method.round(engine, state, t)
        clock.lap()
    network = work.network()
    torch.nn.utils.vector_to_parameters(state.server, network.parameters())
    work.leave(clock, work.score(network), abps=__version__)
    engine.close()


if __name__ == "__main__":
    main()
