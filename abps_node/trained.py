"""A center's model as it was committed, with the preprocessing that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from abps_node.data import Encoder
from abps_node.data.features import RawFeatures
from abps_node.errors import StoreError
from abps_node.learning.model import Mlp
from abps_node.learning.state import from_tensors
from abps_node.learning.utility import probability
from abps_node.store.models import read_model, read_preprocessing
from abps_node.store.reader import Reader
from protocol.contract import Contract
from protocol.events import ModelRef
from protocol.record import RoundRecord

Which = Literal["best", "last", "stage2"]
PROBABILITY: Final = "probability"

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
    """Of the round after which the model was kept; its validation is that of this very model."""
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

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The preprocessing of the columns that are read."""
        return (self.encoder,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the answers are called in a table of scores."""
        return (PROBABILITY,)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What they are about, for people."""
        return (f"{self.contract.data.label} = 1",)

    def answers(self, features: Sequence[RawFeatures]) -> NDArray[np.float64]:
        """For patients, read as ``encoders`` say: shape ``(rows, outputs)``."""
        (raw,) = features
        return probability(self.log_odds(raw))[:, None]


@dataclass(frozen=True)
class ModelFile:
    """A committed model as it lies in its file."""

    center: str
    contract: Contract
    which: Which
    record: RoundRecord
    ref: ModelRef
    tensors: dict[str, torch.Tensor]
    fitted: dict[str, Any]
    """What was fitted for its preprocessing, and what its heads are."""


def load_model(state_dir: Path, which: Which) -> TrainedModel:
    """The best model on the own validation patients, or that of the last round.

    Works beside a running daemon. Raises ``StoreError`` if there is none, if it is damaged, or if
    it has several heads.
    """
    return plain_model(read_file(state_dir, which), state_dir)


def plain_model(file: ModelFile, state_dir: Path) -> TrainedModel:
    """The model of a file, which must answer the contract's label alone, else ``StoreError``."""
    if "objectives" in file.fitted:
        names = ", ".join(each["name"] for each in file.fitted["objectives"])
        raise StoreError(
            f"{state_dir / 'models' / file.ref.name}: found a model with a head for each of "
            f"{names}, allowed here: one that answers the contract's label alone "
            "(docs/use-the-model.md)"
        )
    contract = file.contract
    encoder = Encoder.from_dict(file.fitted)
    mlp = Mlp(
        (len(encoder.inputs), *contract.model.hidden, 1),
        contract.model.dropout,
        contract.policy.head_layers,
    )
    return TrainedModel(
        center=file.center,
        contract=contract,
        which=file.which,
        record=file.record,
        file=file.ref,
        encoder=encoder,
        mlp=mlp,
        weights=from_tensors(mlp, file.tensors).weights,
    )


def read_file(state_dir: Path, which: Which) -> ModelFile:
    """The file of a model, checked; raises ``StoreError`` if there is none or it is damaged."""
    torch.set_num_threads(1)
    for attempt in range(_TRIES):
        reader = Reader(state_dir)
        record, ref = found = _named(reader, state_dir, which)
        try:
            tensors, fitted = read_model(state_dir, ref), read_preprocessing(state_dir, ref)
            break
        except StoreError:
            if attempt == _TRIES - 1 or _named(reader, state_dir, which) == found:
                raise
    center, contract = reader.status().center, reader.contract
    return ModelFile(center, contract, which, record, ref, tensors, fitted)


def _named(reader: Reader, state_dir: Path, which: Which) -> tuple[RoundRecord, ModelRef]:
    patience = reader.contract.policy.patience
    round_of_it: Literal["best", "last"] = "last" if patience is None else "best"
    found = reader.model(round_of_it if which == "stage2" else which)
    if found is None:
        raise StoreError(f"{state_dir}: found no committed round yet, so there is no model")
    if which != "stage2":
        return found
    report = reader.report("stage2")
    if report is None:
        raise StoreError(
            f"{state_dir}: found no model of stage 2: it comes after the last round, where "
            "center.toml has [stage2]"
        )
    value = report[f"validation_{report['kept']}"]
    measured = found[0].validation.model_copy(update={"value": value})
    record = found[0].model_copy(update={"validation": measured})
    return record, ModelRef(report["model"], report["sha256"])


def _chunks(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, x.shape[0], _CHUNK):
        yield x[start : start + _CHUNK]
