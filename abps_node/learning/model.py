"""The multilayer perceptron of paper section 6.3, as functions of one flat parameter vector.

All parameters of a model are one float32 vector, layer by layer from the input, weight before bias.
The shared trunk is a prefix of it, the private head the rest, so that exchanging, averaging and
optimizing are each one operation on one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from abps_node.data import input_size
from abps_node.errors import ConfigError
from protocol.contract import Contract
from protocol.trunk import TrunkLayout


@dataclass(frozen=True)
class Mlp:
    """Shape of the model: ``d → hidden… → 1`` with ReLU and dropout after each hidden layer."""

    widths: tuple[int, ...]
    """Input size d, hidden sizes, 1."""
    dropout: float
    head_layers: int
    """Linear layers at the output that stay private: 0 none, 1 P, 2 ABPS-X."""

    @classmethod
    def of(cls, contract: Contract) -> Mlp:
        """The model that a contract describes; ``ConfigError`` if that is of another kind."""
        if contract.model.kind != "mlp":
            raise ConfigError(
                f'contract.model.kind: found "{contract.model.kind}", allowed here: "mlp"'
            )
        widths = (input_size(contract.data), *contract.model.hidden, 1)
        return cls(widths, contract.model.dropout, contract.policy.head_layers)

    @cached_property
    def tensors(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of all parameters, in the order of the flat vector."""
        named: list[tuple[str, tuple[int, ...]]] = []
        for layer, (wide, narrow) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            named += [
                (f"layers.{layer}.weight", (narrow, wide)),
                (f"layers.{layer}.bias", (narrow,)),
            ]
        return tuple(named)

    @cached_property
    def sizes(self) -> list[int]:
        """Number of parameters in each tensor."""
        return [math.prod(shape) for _, shape in self.tensors]

    @cached_property
    def size(self) -> int:
        """Number of parameters in all."""
        return sum(self.sizes)

    @cached_property
    def trunk(self) -> TrunkLayout:
        """The part that is shared with partners."""
        return TrunkLayout(self.tensors[: len(self.tensors) - 2 * self.head_layers])

    def split(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Views of the flat vector, one per parameter tensor."""
        parts = torch.split(weights, self.sizes)
        return [part.view(shape) for part, (_, shape) in zip(parts, self.tensors, strict=True)]

    def initial(self, seed: int) -> torch.Tensor:
        """The common start: uniform in ±1/sqrt(fan-in), like ``nn.Linear``, from ``seed`` alone."""
        generator = torch.Generator().manual_seed(seed)
        weights = torch.empty(self.size)
        for number, parameter in enumerate(self.split(weights)):
            bound = 1.0 / math.sqrt(self.widths[number // 2])
            # In steps that round once each, lest a fused multiply-add of another processor give
            # another last bit: centers whose starts differ refuse each other.
            draws = torch.rand(parameter.shape, generator=generator)
            parameter.copy_(draws.mul_(2.0).sub_(1.0).mul_(bound))
        return weights

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers, input side first."""
        return self.widths[1:-1]

    def representation(
        self, weights: torch.Tensor, x: torch.Tensor, masks: Sequence[torch.Tensor] = ()
    ) -> torch.Tensor:
        """What the last hidden layer gives on, ``(n, width)``, for rows ``x`` ``(n, d)``.

        ``masks`` are dropout masks, float32 ``(n, width)`` per hidden layer; none is evaluation.
        """
        parameters = self.split(weights)
        for layer in range(len(self.hidden)):
            x = torch.relu(functional.linear(x, *parameters[2 * layer : 2 * layer + 2]))
            if masks:
                x = x * masks[layer]
        return x

    def output(self, weights: torch.Tensor, representation: torch.Tensor) -> torch.Tensor:
        """Log-odds, shape ``(n,)``, from what the last hidden layer gave on."""
        return functional.linear(representation, *self.split(weights)[-2:]).squeeze(-1)

    def logits(
        self, weights: torch.Tensor, x: torch.Tensor, masks: Sequence[torch.Tensor] = ()
    ) -> torch.Tensor:
        """Log-odds, shape ``(n,)``, of rows ``x`` ``(n, d)``; ``masks`` as above."""
        return self.output(weights, self.representation(weights, x, masks))
