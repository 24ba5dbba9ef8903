"""The client of public_flower.py: a module of its own, which Ray's actors import once each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from public_work import Work
from torch import nn


def app(folder: str) -> ClientApp:
    """A client that finds its patients in this folder."""
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        work, network = _kept(folder)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = work.patients(int(context.node_config["partition-id"]))
        _fit(work, network, x, y)
        content = {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    return client


@cache
def _kept(folder: str) -> tuple[Work, nn.Sequential]:
    torch.set_num_threads(1)
    work = Work.read(Path(folder))
    return work, work.network()


def _fit(work: Work, network: nn.Sequential, x: torch.Tensor, y: torch.Tensor) -> None:
    network.train()
    optimizer = work.adam(network)
    loss_of = nn.functional.binary_cross_entropy_with_logits
    for _ in range(work.settings["epochs"]):
        for index in torch.randperm(len(y)).split(work.settings["batch_size"]):
            optimizer.zero_grad()
            loss_of(network(x[index]), y[index]).backward()
            optimizer.step()
