"""A contestant of public_simulators.py: fluke (https://makgyver.github.io/fluke).

Clients and data in memory, its FastDataLoader, neither clients nor server evaluate, nothing is
logged or saved, one thread for networks this small.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver
from public_work import Clock, Work, folder_told


class Laps(FederationObserver):
    """Fluke tells of the ends of its rounds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def start_round(self, round: int, global_model: Any) -> None:
        """Only the first one is of interest."""
        if round == 1:
            self.clock.lap()

    def end_round(self, round: int) -> None:
        """All models are averaged."""
        self.clock.lap()


def main() -> None:
    """FedAvg, everybody in every round, weighted by training rows."""
    torch.set_num_threads(1)
    work = Work.read(folder_told())
    settings = work.settings
    environment = FlukeENV()
    environment.set_seed(11)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    loaders = [
        FastDataLoader(
            *work.patients(center),
            num_labels=2,
            batch_size=settings["batch_size"],
            shuffle=True,
            skip_singleton=False,
        )
        for center in range(work.centers)
    ]
    data = DummyDataContainer(loaders, [None] * work.centers, None, num_classes=2)
    optimizer = {
        "name": torch.optim.Adam,
        "lr": settings["learning_rate"],
        "weight_decay": settings["weight_decay"],
    }
    client = {
        "batch_size": settings["batch_size"],
        "local_epochs": settings["epochs"],
        "loss": torch.nn.BCEWithLogitsLoss,
        "optimizer": optimizer,
        "scheduler": {"gamma": 1, "step_size": 1},
    }
    algorithm = FedAVG(
        n_clients=work.centers,
        data_splitter=DataSplitter(data),
        hyper_params=DDict(client=client, server={"weighted": True}, model=work.network()),
    )
    clock = Clock()
    algorithm.set_callbacks(Laps(clock))
    algorithm.run(n_rounds=settings["rounds"], eligible_perc=1.0)
    work.leave(clock, work.score(algorithm.server.model), fluke=version("fluke-fl"))


if __name__ == "__main__":
    main()
