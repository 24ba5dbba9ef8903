"""A center's model as it was committed, with the preprocessing that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from abps_node.data import Encoder
from abps_node.data.features import RawFeatures
from abps_node.errors import StoreError
from abps_node.learning.model import Mlp
from abps_node.learning.state import from_tensors
from abps_node.store.models import read_model, read_preprocessing
from abps_node.store.reader import Reader
from protocol.contract import Contract
from protocol.events import ModelRef
from protocol.record import RoundRecord

Which = Literal["best", "last"]

_CHUNK: Final = 65_536
"""Rows that go through the network at once."""
_TRIES: Final = 3
"""A running daemon deletes the models of earlier rounds; the newest is then another one."""


@dataclass(frozen=True)
class TrainedModel:
    """Weights, preprocessing, and the round that they come from."""

    center: str
    contract: Contract
    which: Which
    record: RoundRecord
    """Of the round after which the model was kept."""
    file: ModelRef
    encoder: Encoder
    mlp: Mlp
    weights: torch.Tensor
    """Flat parameters, float32 ``(mlp.size,)``."""

    def log_odds(self, features: RawFeatures) -> NDArray[np.float64]:
        """The model's output for patients, shape ``(rows,)``."""
        x = torch.from_numpy(self.encoder.transform(features))
        parts = [np.empty(0)]
        with torch.inference_mode():
            for part in _chunks(x):
                parts.append(self.mlp.logits(self.weights, part).numpy().astype(np.float64))
        return np.concatenate(parts)


def load_model(state_dir: Path, which: Which) -> TrainedModel:
    """The best model on the own validation patients, or that of the last round.

    Works beside a running daemon. Raises ``StoreError`` if there is none or it is damaged.
    """
    torch.set_num_threads(1)
    for attempt in range(_TRIES):
        reader = Reader(state_dir)
        found = reader.model(which)
        if found is None:
            raise StoreError(f"{state_dir}: found no committed round yet, so there is no model")
        record, ref = found
        try:
            tensors, fitted = read_model(state_dir, ref), read_preprocessing(state_dir, ref)
            break
        except StoreError:
            if attempt == _TRIES - 1 or reader.model(which) == found:
                raise
    if "objectives" in fitted:
        names = ", ".join(each["name"] for each in fitted["objectives"])
        raise StoreError(
            f"{state_dir / 'models' / ref.name}: found a model with a head for each of {names}, "
            "allowed here: one that answers the contract's label alone (docs/objectives.md)"
        )
    contract = reader.contract
    encoder = Encoder.from_dict(fitted)
    mlp = Mlp(
        (len(encoder.inputs), *contract.model.hidden, 1),
        contract.model.dropout,
        contract.policy.head_layers,
    )
    return TrainedModel(
        center=reader.status().center,
        contract=contract,
        which=which,
        record=record,
        file=ref,
        encoder=encoder,
        mlp=mlp,
        weights=from_tensors(mlp, tensors).weights,
    )


def _chunks(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, x.shape[0], _CHUNK):
        yield x[start : start + _CHUNK]
