"""Shared trunks with a backward pass for several objectives at once.

Forward once, then the gradients of all objectives with respect to the trunk in one pass: they share
activations, masks and the overhead of each operation, which on networks of this size is most of the
time. Written out, since automatic differentiation would walk through the network once for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import torch
from torch.nn import functional

from abps_node.learning.model import Mlp
from protocol.contract import Contract

Shape = tuple[int, ...]
Tensors = tuple[tuple[str, Shape], ...]
Statistics = tuple[torch.Tensor, ...]
"""Mean and variance of each batch norm in turn, each ``(width,)``; empty without batch norm."""
Parts = Sequence[torch.Tensor]
"""The trunk's parameters as views, in the order of ``tensors``."""
EPS: Final = 1e-5
"""Of batch norm and layer norm."""


class Trunk(Protocol):
    """From common features to a representation."""

    @property
    def tensors(self) -> Tensors:
        """Names and shapes of all parameters, in their order in the flat vector."""

    @property
    def width(self) -> int:
        """Width of the representation."""

    @property
    def dropped(self) -> tuple[int, ...]:
        """Widths of the layers that drop out, in their order."""

    @property
    def normalizes(self) -> bool:
        """Whether rows of a batch see each other (batch norm)."""

    def bounds(self) -> list[float]:
        """Initial weights are uniform in ± this, per tensor; a constant where it is negative."""

    def forward(
        self,
        parts: Parts,
        x: torch.Tensor,
        masks: Sequence[torch.Tensor] = (),
        statistics: Statistics | None = None,
    ) -> tuple[torch.Tensor, Any]:
        """Representation ``(n, width)`` of rows ``(n, d)``, and what ``backward`` needs.

        With ``statistics`` batch norm uses these, else those of the batch.
        """

    def backward(self, parts: Parts, cache: Any, gradient: torch.Tensor) -> torch.Tensor:
        """From ∂L_s/∂representation ``(S, n, width)`` to ∂L_s/∂trunk, ``(S, trunk size)``."""

    def statistics(self, parts: Parts, x: torch.Tensor) -> Statistics:
        """What evaluation normalizes with: those of these (training) rows."""


@dataclass(frozen=True)
class MlpTrunk:
    """The shared layers of the perceptron of ABPS: linear, ReLU, dropout, each ``layers`` times."""

    widths: tuple[int, ...]
    """Input size, then the width of every shared layer."""

    normalizes = False

    @cached_property
    def tensors(self) -> Tensors:
        """``layers.i.weight`` and ``layers.i.bias``, as the plain model names them."""
        named: list[tuple[str, Shape]] = []
        for layer, (wide, narrow) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            named += [
                (f"layers.{layer}.weight", (narrow, wide)),
                (f"layers.{layer}.bias", (narrow,)),
            ]
        return tuple(named)

    @property
    def width(self) -> int:
        """Of the last shared layer."""
        return self.widths[-1]

    @property
    def dropped(self) -> tuple[int, ...]:
        """Every layer drops out."""
        return self.widths[1:]

    def bounds(self) -> list[float]:
        """1/sqrt(fan-in), as everywhere."""
        return [1.0 / math.sqrt(wide) for wide in self.widths[:-1] for _ in range(2)]

    def forward(
        self,
        parts: Parts,
        x: torch.Tensor,
        masks: Sequence[torch.Tensor] = (),
        statistics: Statistics | None = None,
    ) -> tuple[torch.Tensor, Any]:
        """See ``Trunk``."""
        cache = []
        for layer in range(len(self.widths) - 1):
            activated = torch.relu(functional.linear(x, *parts[2 * layer : 2 * layer + 2]))
            mask = masks[layer] if masks else None
            cache.append((x, activated, mask))
            x = activated if mask is None else activated * mask
        return x, cache

    def backward(self, parts: Parts, cache: Any, gradient: torch.Tensor) -> torch.Tensor:
        """See ``Trunk``; for one objective to the last bit what autograd gives."""
        found: list[torch.Tensor] = []
        for layer in reversed(range(len(self.widths) - 1)):
            x, activated, mask = cache[layer]
            gradient = _through_relu(gradient, activated, mask)
            found = [*_linear(gradient, x), *found]
            if layer:
                gradient = _before(gradient, parts[2 * layer])
        return _flat(found)

    def statistics(self, parts: Parts, x: torch.Tensor) -> Statistics:
        """None."""
        return ()


@dataclass(frozen=True)
class FedcareTrunk:
    """The backbone of FedCARE (its section V-A): two layers with batch norm and a residual.

    Per layer linear, batch norm, ReLU, dropout; the second adds its output to the first's; then
    linear to the representation, and layer norm.
    """

    inputs: int
    hidden: int
    width: int

    normalizes = True

    @cached_property
    def tensors(self) -> Tensors:
        """Running statistics are not among them: they stay at the center."""
        hidden, width = self.hidden, self.width
        return (
            ("layers.0.weight", (hidden, self.inputs)),
            ("layers.0.bias", (hidden,)),
            ("norms.0.weight", (hidden,)),
            ("norms.0.bias", (hidden,)),
            ("layers.1.weight", (hidden, hidden)),
            ("layers.1.bias", (hidden,)),
            ("norms.1.weight", (hidden,)),
            ("norms.1.bias", (hidden,)),
            ("layers.2.weight", (width, hidden)),
            ("layers.2.bias", (width,)),
            ("norms.2.weight", (width,)),
            ("norms.2.bias", (width,)),
        )

    @property
    def dropped(self) -> tuple[int, ...]:
        """Both hidden layers."""
        return (self.hidden, self.hidden)

    def bounds(self) -> list[float]:
        """1/sqrt(fan-in) for linear layers; norms start as the identity: −1 is one, −0.5 zero."""
        found = []
        for wide in (self.inputs, self.hidden, self.hidden):
            found += [1.0 / math.sqrt(wide)] * 2 + [ONES, ZEROS]
        return found

    def forward(
        self,
        parts: Parts,
        x: torch.Tensor,
        masks: Sequence[torch.Tensor] = (),
        statistics: Statistics | None = None,
    ) -> tuple[torch.Tensor, Any]:
        """See ``Trunk``."""
        first, first_cache = self._block(0, parts, x, masks, statistics)
        second, second_cache = self._block(1, parts, first, masks, statistics)
        summed = first + second
        linear = functional.linear(summed, parts[8], parts[9])
        normal, _, rstd = torch.native_layer_norm(linear, [self.width], None, None, EPS)
        batched = statistics is None
        out = torch.addcmul(parts[11], normal, parts[10])
        return out, (first_cache, second_cache, summed, normal, rstd, batched)

    def _block(
        self,
        number: int,
        parts: Parts,
        x: torch.Tensor,
        masks: Sequence[torch.Tensor],
        statistics: Statistics | None,
    ) -> tuple[torch.Tensor, Any]:
        weight, bias, scale, shift = parts[4 * number : 4 * number + 4]
        linear = functional.linear(x, weight, bias)
        if statistics is None:
            normal, mean, rstd = _normalized(linear)
        else:
            mean, variance = statistics[2 * number : 2 * number + 2]
            rstd = (variance + EPS).rsqrt()
            normal = (linear - mean) * rstd
        activated = torch.relu(torch.addcmul(shift, normal, scale))
        mask = masks[number] if masks else None
        out = activated if mask is None else activated * mask
        return out, (x, normal, mean, rstd, activated, mask)

    def backward(self, parts: Parts, cache: Any, gradient: torch.Tensor) -> torch.Tensor:
        """See ``Trunk``."""
        first_cache, second_cache, summed, normal, rstd, batched = cache
        last_scale, last_shift = (gradient * normal).sum(1), gradient.sum(1)
        scaled = gradient * parts[10]
        inner = scaled - scaled.mean(2, keepdim=True)
        inner = rstd * torch.addcmul(
            inner, normal, (scaled * normal).mean(2, keepdim=True), value=-1
        )
        last = [*_linear(inner, summed), last_scale, last_shift]
        summed_gradient = _before(inner, parts[8])
        second, below = self._block_backward(1, parts, second_cache, summed_gradient, batched)
        first, _ = self._block_backward(
            0, parts, first_cache, summed_gradient + below, batched, lowest=True
        )
        return _flat([*first, *second, *last])

    def _block_backward(
        self,
        number: int,
        parts: Parts,
        cache: Any,
        gradient: torch.Tensor,
        batched: bool,
        lowest: bool = False,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        x, normal, _, rstd, activated, mask = cache
        gradient = _through_relu(gradient, activated, mask)
        scale_gradient, shift_gradient = (gradient * normal).sum(1), gradient.sum(1)
        if batched:
            rows = normal.shape[0]
            gradient = gradient - (shift_gradient / rows).unsqueeze(1)
            share = (scale_gradient / rows).unsqueeze(1)
            gradient = torch.addcmul(gradient, normal, share, value=-1)
        gradient = gradient * (parts[4 * number + 2] * rstd)
        found = [*_linear(gradient, x), scale_gradient, shift_gradient]
        below = gradient if lowest else _before(gradient, parts[4 * number])
        return found, below

    def statistics(self, parts: Parts, x: torch.Tensor) -> Statistics:
        """Those of all rows at once, layer by layer."""
        found: list[torch.Tensor] = []
        for number in range(2):
            x, (_, _, mean, rstd, _, _) = self._block(number, parts, x, (), None)
            found += [mean, (rstd.square().reciprocal() - EPS).clamp_(min=0.0)]
        return tuple(found)


ONES: Final = -1.0
ZEROS: Final = -0.5
"""In the place of a bound: the tensor starts as a constant."""


def trunk_of(contract: Contract, inputs: int) -> Trunk:
    """The trunk that a contract describes."""
    hidden = contract.model.hidden
    if contract.model.kind == "fedcare":
        return FedcareTrunk(inputs, hidden[0], hidden[2])
    model = Mlp.of(contract)
    return MlpTrunk(model.widths[: len(model.widths) - model.head_layers])


def _normalized(linear: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows with mean 0 and variance 1 in each column, the means, and 1/sqrt(variance + ε).

    By batch norm's own kernel: ``torch.var_mean`` over rows takes ten times as long.
    """
    normal, mean, rstd = torch.native_batch_norm(linear, None, None, None, None, True, 0.0, EPS)
    return normal, mean, rstd


def _through_relu(
    gradient: torch.Tensor, activated: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    if gradient.shape[0] == 1:
        one = gradient[0] if mask is None else gradient[0] * mask
        through: torch.Tensor = torch.ops.aten.threshold_backward(one, activated, 0.0)
        return through.unsqueeze(0)
    passing = (activated > 0).to(activated.dtype)
    return gradient * (passing if mask is None else passing.mul_(mask))


def _linear(gradient: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of weight ``(S, out, in)`` and bias ``(S, out)``."""
    if gradient.shape[0] == 1:
        return [gradient[0].t().mm(x).unsqueeze(0), gradient.sum(1)]
    return [
        torch.bmm(gradient.transpose(1, 2), x.expand(gradient.shape[0], -1, -1)),
        gradient.sum(1),
    ]


def _before(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The gradient of a linear layer's input."""
    objectives, rows, _ = gradient.shape
    return gradient.reshape(objectives * rows, -1).mm(weight).view(objectives, rows, -1)


def _flat(found: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.reshape(part.shape[0], -1) for part in found], dim=1)
