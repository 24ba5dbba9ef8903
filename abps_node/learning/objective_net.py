"""A trunk of common features with one head per objective, on one flat parameter vector.

A head's input is [trunk representation ‖ private features]; heads share nothing with each other.
The trunk is a prefix of the vector, as in the plain model, then come the heads in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch.nn import functional

from abps_node.data import input_size
from abps_node.learning.trunks import ONES, Statistics, Tensors, Trunk, trunk_of
from protocol.contract import Contract
from protocol.trunk import TrunkLayout

FEDCARE_HEAD: Final[tuple[int, ...]] = (64, 32)
"""Hidden layers of a head of FedCARE (its section V-A)."""


@dataclass(frozen=True)
class ObjectiveNet:
    """Shape of the model; all arrays are arguments."""

    shared: Trunk
    private: int
    """Number of private inputs, p."""
    names: tuple[str, ...]
    """Of the objectives, S of them."""
    head_hidden: tuple[int, ...]
    dropout: float

    @classmethod
    def of(cls, contract: Contract, private: int, names: Sequence[str]) -> ObjectiveNet:
        """The model that a contract describes, with the heads of one center."""
        shared = trunk_of(contract, input_size(contract.data))
        if contract.model.kind == "fedcare":
            hidden = FEDCARE_HEAD
        else:
            layers = contract.policy.head_layers
            hidden = tuple(contract.model.hidden[len(contract.model.hidden) + 1 - layers :])
        return cls(shared, private, tuple(names), hidden, contract.model.dropout)

    @cached_property
    def head_widths(self) -> tuple[int, ...]:
        """Input of a head, its hidden layers, 1."""
        return (self.shared.width + self.private, *self.head_hidden, 1)

    @cached_property
    def tensors(self) -> Tensors:
        """Names and shapes of all parameters, in the order of the flat vector."""
        heads = [
            (f"heads.{name}.{layer}.{part}", shape)
            for name in self.names
            for layer, (wide, narrow) in enumerate(
                zip(self.head_widths, self.head_widths[1:], strict=False)
            )
            for part, shape in (("weight", (narrow, wide)), ("bias", (narrow,)))
        ]
        return (*self.shared.tensors, *heads)

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
        return TrunkLayout(self.shared.tensors)

    @cached_property
    def trunk_size(self) -> int:
        """Number of shared parameters."""
        return self.trunk.size

    @cached_property
    def hidden(self) -> tuple[int, ...]:
        """Widths of all layers that drop out: the trunk's, then those of each head in turn."""
        return (*self.shared.dropped, *self.head_hidden * len(self.names))

    @cached_property
    def _trunk_shapes(self) -> tuple[list[int], list[tuple[int, ...]]]:
        shapes = [shape for _, shape in self.shared.tensors]
        return [math.prod(shape) for shape in shapes], shapes

    def split(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Views of the flat vector, one per parameter tensor."""
        parts = torch.split(weights, self.sizes)
        return [part.view(shape) for part, (_, shape) in zip(parts, self.tensors, strict=True)]

    def trunk_parts(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Views of the shared parameters; ``weights`` may be the trunk alone."""
        sizes, shapes = self._trunk_shapes
        parts = torch.split(weights[: self.trunk_size], sizes)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def initial(self, seed: int) -> torch.Tensor:
        """The start from ``seed`` alone, trunk first: whatever its heads, a center's trunk starts
        as all others' do. Uniform in ±1/sqrt(fan-in); norms as the identity."""
        generator = torch.Generator().manual_seed(seed)
        weights = torch.empty(self.size)
        heads = [1.0 / math.sqrt(wide) for wide in self.head_widths[:-1] for _ in range(2)]
        bounds = [*self.shared.bounds(), *heads * len(self.names)]
        for parameter, bound in zip(self.split(weights), bounds, strict=True):
            if bound < 0:
                parameter.fill_(1.0 if bound == ONES else 0.0)
                continue
            # In steps that round once each, see the plain model.
            draws = torch.rand(parameter.shape, generator=generator)
            parameter.copy_(draws.mul_(2.0).sub_(1.0).mul_(bound))
        return weights

    def output_bias(self, weights: torch.Tensor, number: int) -> torch.Tensor:
        """View of the last bias of an objective's head, ``(1,)``."""
        head = (weights.shape[0] - self.trunk_size) // len(self.names)
        end = self.trunk_size + (number + 1) * head
        return weights[end - 1 : end]

    def heads(
        self, heads: torch.Tensor, inputs: torch.Tensor, masks: Sequence[torch.Tensor] = ()
    ) -> torch.Tensor:
        """Outputs ``(S, n)`` of all heads on their inputs ``(S, n, width + p)``.

        ``heads`` are their parameters, flat; ``masks`` those of all heads in turn.
        """
        if len(self.names) == 1:
            return self._one_head(heads, inputs[0], masks).unsqueeze(0)
        table = heads.view(len(self.names), -1)
        depth, begin = len(self.head_hidden), 0
        for layer, (wide, narrow) in enumerate(
            zip(self.head_widths, self.head_widths[1:], strict=False)
        ):
            end = begin + narrow * wide
            weight = table[:, begin:end].view(-1, narrow, wide)
            bias = table[:, None, end : end + narrow]
            begin = end + narrow
            inputs = torch.baddbmm(bias, inputs, weight.transpose(1, 2))
            if layer < depth:
                inputs = torch.relu(inputs)
                if masks:
                    inputs = inputs * torch.stack(list(masks[layer::depth]))
        return inputs.squeeze(-1)

    def _one_head(
        self, head: torch.Tensor, x: torch.Tensor, masks: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """The operations of the plain model, so that one objective gives the plain step's bits."""
        sizes = self.sizes[len(self.shared.tensors) :]
        shapes = [shape for _, shape in self.tensors[len(self.shared.tensors) :]]
        parts = [p.view(s) for p, s in zip(torch.split(head, sizes), shapes, strict=True)]
        for layer in range(len(self.head_hidden)):
            x = torch.relu(functional.linear(x, *parts[2 * layer : 2 * layer + 2]))
            if masks:
                x = x * masks[layer]
        return functional.linear(x, *parts[-2:]).squeeze(-1)

    def inputs(self, representation: torch.Tensor, private: torch.Tensor) -> torch.Tensor:
        """[representation ‖ private features] for every head, ``(S, n, width + p)``."""
        joined = torch.cat([representation, private], 1) if self.private else representation
        return joined.expand(len(self.names), -1, -1)

    def outputs(
        self,
        weights: torch.Tensor,
        x: torch.Tensor,
        private: torch.Tensor,
        statistics: Statistics,
    ) -> torch.Tensor:
        """Raw outputs ``(S, n)`` in evaluation: log-odds, or log1p days before Softplus."""
        with torch.inference_mode():
            shared, _ = self.shared.forward(self.trunk_parts(weights), x, (), statistics or None)
            return self.heads(weights[self.trunk_size :], self.inputs(shared, private))

    def statistics(self, weights: torch.Tensor, x: torch.Tensor) -> Statistics:
        """Of these training rows; see ``Trunk``."""
        with torch.no_grad():
            return self.shared.statistics(self.trunk_parts(weights), x)
