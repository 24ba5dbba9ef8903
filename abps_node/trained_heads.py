"""A center's model with one head for each of its objectives, applied to patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from abps_node.data import Encoder
from abps_node.data.features import RawFeatures
from abps_node.learning.objective_learner import STATISTICS
from abps_node.learning.objective_losses import durations
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.state import from_tensors
from abps_node.learning.trunks import Statistics
from abps_node.learning.utility import probability
from abps_node.trained import PROBABILITY, ModelFile, TrainedModel, Which, plain_model, read_file
from protocol.contract import Contract
from protocol.record import RoundRecord

DAYS = "days"


@dataclass(frozen=True)
class Head:
    """What one head answers."""

    name: str
    column: str
    binary: bool
    """Whether it is a probability; else days."""


@dataclass(frozen=True)
class TrainedHeads:
    """Weights, preprocessing, and the round that they come from."""

    center: str
    contract: Contract
    which: Which
    record: RoundRecord
    encoder: Encoder
    private: Encoder
    private_used: bool
    """Whether the heads of this model see the private features; else zeros in their place."""
    heads: tuple[Head, ...]
    net: ObjectiveNet
    weights: torch.Tensor
    statistics: Statistics
    """Batch norm's, of the training rows under these very weights."""

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The preprocessing of the columns that are read: common, then private ones."""
        return (self.encoder, self.private) if self._reads_private else (self.encoder,)

    @property
    def _reads_private(self) -> bool:
        return self.private_used and bool(self.private.features)

    @property
    def outputs(self) -> tuple[str, ...]:
        """``probability_NAME`` or ``days_NAME`` for each objective."""
        return tuple(f"{PROBABILITY if h.binary else DAYS}_{h.name}" for h in self.heads)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What the answers are about, for people."""
        return tuple(
            f"{h.name}: {h.column}{' = 1' if h.binary else ' in days'}" for h in self.heads
        )

    def answers(self, features: Sequence[RawFeatures]) -> NDArray[np.float64]:
        """For patients, read as ``encoders`` say: shape ``(rows, outputs)``."""
        x = torch.from_numpy(self.encoder.transform(features[0]))
        private = torch.zeros(x.shape[0], self.net.private)
        if self._reads_private:
            private = torch.from_numpy(self.private.transform(features[1]))
        raw = self.net.outputs(self.weights, x, private, self.statistics).to(torch.float64)
        answers = [
            probability(row.numpy()) if head.binary else durations(row).numpy()
            for head, row in zip(self.heads, raw, strict=True)
        ]
        return np.stack(answers, axis=1)


def load_any(state_dir: Path, which: Which) -> TrainedModel | TrainedHeads:
    """The model, with one output or several heads; see ``load_model``."""
    file = read_file(state_dir, which)
    return _heads(file) if "objectives" in file.fitted else plain_model(file, state_dir)


def _heads(file: ModelFile) -> TrainedHeads:
    fitted = file.fitted
    private = Encoder.from_dict(fitted["private"])
    names = [each["name"] for each in fitted["objectives"]]
    net = ObjectiveNet.of(file.contract, len(private.inputs), names)
    statistics = {n: part for n, part in file.tensors.items() if n.startswith(STATISTICS)}
    rest = {n: part for n, part in file.tensors.items() if n not in statistics}
    return TrainedHeads(
        center=file.center,
        contract=file.contract,
        which=file.which,
        record=file.record,
        encoder=Encoder.from_dict(fitted),
        private=private,
        private_used=fitted["private_used"],
        heads=tuple(
            Head(each["name"], each["column"], each["kind"] != "huber-log")
            for each in fitted["objectives"]
        ),
        net=net,
        weights=from_tensors(net, rest).weights,
        statistics=tuple(statistics[f"{STATISTICS}{n}"] for n in range(len(statistics))),
    )
