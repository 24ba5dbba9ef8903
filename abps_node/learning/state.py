"""What a center keeps of its learning from round to round, and its form as named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from abps_node.errors import StoreError
from abps_node.learning.adam import Adam
from protocol.trunk import TrunkLayout


class Parameters(Protocol):
    """What the state of a model depends on: how its parameters lie in the flat vector."""

    @property
    def tensors(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes in their order."""

    @property
    def size(self) -> int:
        """Number of parameters."""

    @property
    def trunk(self) -> TrunkLayout:
        """The part that is shared."""

    def split(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Views of the flat vector, one per parameter tensor."""

    def initial(self, seed: int) -> torch.Tensor:
        """The start."""


@dataclass
class LearnerState:
    """Everything that the next round depends on, apart from data, contract and seed."""

    weights: torch.Tensor
    """Flat parameters, float32 ``(model.size,)``."""
    adam: Adam
    previous: torch.Tensor
    """The trunk after the last merge, float32 ``(trunk size,)``; zeros before the first."""
    merges: int
    """Merges with at least one partner so far."""

    @classmethod
    def fresh(cls, model: Parameters, init_seed: int) -> LearnerState:
        """The state of every center before round 1."""
        previous = torch.zeros(model.trunk.size)
        return cls(model.initial(init_seed), Adam.fresh(model.size), previous, 0)


def to_tensors(model: Parameters, state: LearnerState) -> dict[str, torch.Tensor]:
    """Named copies: ``model.layers.…``, ``adam.…``, ``merge.…``; nothing shares memory."""
    parameters = zip(model.tensors, model.split(state.weights), strict=True)
    return {
        **{f"model.{name}": part.clone() for (name, _), part in parameters},
        "adam.step": torch.tensor([state.adam.step], dtype=torch.int64),
        "adam.exp_avg": state.adam.exp_avg.clone(),
        "adam.exp_avg_sq": state.adam.exp_avg_sq.clone(),
        "merge.previous": state.previous.clone(),
        "merge.count": torch.tensor([state.merges], dtype=torch.int64),
    }


def from_tensors(model: Parameters, tensors: Mapping[str, torch.Tensor]) -> LearnerState:
    """Inverse of ``to_tensors``, exact; raises ``StoreError`` for the state of another model."""
    expected = {
        **{f"model.{name}": (torch.float32, shape) for name, shape in model.tensors},
        "adam.step": (torch.int64, (1,)),
        "adam.exp_avg": (torch.float32, (model.size,)),
        "adam.exp_avg_sq": (torch.float32, (model.size,)),
        "merge.previous": (torch.float32, (model.trunk.size,)),
        "merge.count": (torch.int64, (1,)),
    }
    if set(tensors) != set(expected):
        found, allowed = (", ".join(sorted(names)) for names in (tensors, expected))
        raise StoreError(f"model state: found tensors {found}; allowed: {allowed}")
    for name, (dtype, shape) in expected.items():
        tensor = tensors[name]
        if tensor.dtype != dtype or tuple(tensor.shape) != shape:
            raise StoreError(
                f"model state: tensor {name!r}: found {tensor.dtype} {tuple(tensor.shape)}, "
                f"allowed: {dtype} {shape}"
            )
    weights = torch.cat([tensors[f"model.{name}"].flatten() for name, _ in model.tensors])
    adam = Adam(
        int(tensors["adam.step"]),
        tensors["adam.exp_avg"].clone(),
        tensors["adam.exp_avg_sq"].clone(),
    )
    return LearnerState(
        weights, adam, tensors["merge.previous"].clone(), int(tensors["merge.count"])
    )
