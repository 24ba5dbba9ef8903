"""Forward and backward pass of many multilayer perceptrons at once, by hand.

G networks with their own weights see b rows each; a layer is one batched matrix product. Written by
hand, since tapes and ``vmap`` cost more than the arithmetic of networks this small. Activations are
kept without the factor 1/(1 − p) of dropout: it is folded into the products that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import torch

from abps_node.learning.draws import dropped_levels, survivor_scale
from abps_node.learning.model import Mlp

# ReLU's derivative and dropout alike are «this where that exceeds a threshold, else 0»; torch has
# one vectorized kernel for it, several times faster than comparing and multiplying.
_where_above = torch.ops.aten.threshold_backward.grad_input


@dataclass
class Workspace:
    """Scratch memory of one thread, reused from step to step instead of asked for anew."""

    buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """A contiguous tensor with arbitrary content; the same name gives the same memory."""
        size = prod(shape)
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = torch.empty(size, dtype=dtype)
        return buffer[:size].view(shape)


class Network:
    """The arithmetic of one model shape."""

    def __init__(self, model: Mlp) -> None:
        self.model = model
        self.dropped = dropped_levels(model.dropout)

    def layers(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Views of weights ``(G, P)``: per layer ``(G, out, in)`` and ``(G, 1, out)``."""
        views, at = [], 0
        for wide, narrow in pairwise(self.model.widths):
            end = at + wide * narrow
            weight = flat[:, at:end].view(-1, narrow, wide)
            views.append((weight, flat[:, end : end + narrow].unsqueeze(1)))
            at = end + narrow
        return views

    def evaluate(
        self, flat: torch.Tensor, x: torch.Tensor, space: Workspace
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits ``(G, b)`` and last hidden activations ``(G, b, h)`` without dropout.

        The activations are scratch memory.
        """
        layers = self.layers(flat)
        for number, (weight, bias) in enumerate(layers[:-1]):
            out = space.take(f"hidden {number}", (*x.shape[:2], weight.shape[1]))
            x = torch.baddbmm(bias, x, weight.mT, out=out).relu_()
        return torch.baddbmm(layers[-1][1], x, layers[-1][0].mT).squeeze(2), x

    def forward(
        self, flat: torch.Tensor, x: torch.Tensor, levels: list[torch.Tensor], space: Workspace
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Activations ``(G, b, width)`` before each layer and logits ``(G, b)``, dropout on.

        ``levels`` are the bytes that decide what drops out, uint8 ``(G, b, width)`` per hidden
        layer; none without dropout.
        """
        activations, scale = [x], 1.0
        layers = self.layers(flat)
        for number, (weight, bias) in enumerate(layers[:-1]):
            out = space.take(f"hidden {number}", (*x.shape[:2], weight.shape[1]))
            torch.baddbmm(bias, activations[-1], weight.mT, alpha=scale, out=out)
            out.relu_()
            if levels:
                draws = space.take("draws", tuple(out.shape)).copy_(levels[number])
                _where_above(out, draws, self.dropped - 0.5, grad_input=out)
                scale = survivor_scale(self.dropped)
            activations.append(out)
        weight, bias = layers[-1]
        logits = torch.bmm(activations[-1], weight.mT)
        return activations, logits.squeeze(2).mul_(scale).add_(bias.squeeze(2))

    def backward(
        self,
        flat: torch.Tensor,
        activations: list[torch.Tensor],
        gradient: torch.Tensor,
        extra: torch.Tensor | None,
        out: torch.Tensor,
        space: Workspace,
    ) -> None:
        """Fill ``out`` ``(G, P)`` with the gradient of the weights.

        ``gradient`` ``(G, b)`` is that of the logits; ``extra`` ``(G, b, h)`` is added to that of
        the last hidden activations.
        """
        scale = survivor_scale(self.dropped)
        layers, targets = self.layers(flat), self.layers(out)
        delta = gradient.unsqueeze(2)
        for number in range(len(layers) - 1, -1, -1):
            below, (to_weight, to_bias) = activations[number], targets[number]
            factor = scale if number > 0 else 1.0  # the inputs do not drop out
            if delta.shape[2] == 1:
                torch.mul(torch.bmm(delta.mT, below), factor, out=to_weight)
            else:
                torch.baddbmm(to_weight, delta.mT, below, beta=0, alpha=factor, out=to_weight)
            torch.sum(delta, 1, keepdim=True, out=to_bias)
            if number == 0:
                return
            weight = layers[number][0]
            back = space.take(f"back {number}", tuple(below.shape))
            if weight.shape[1] == 1:
                torch.mul(delta, weight * scale, out=back)
            else:
                torch.baddbmm(back, delta, weight, beta=0, alpha=scale, out=back)
            if extra is not None and number == len(layers) - 1:
                back.add_(extra)
            delta = _where_above(back, below, 0.0, grad_input=back)
