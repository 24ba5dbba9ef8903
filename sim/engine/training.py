"""The local step of a chunk of centers: the batches and masks of ``local_step``, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from abps_node.learning.draws import Draws, by_layer
from abps_node.learning.local_step import TrainingDiverged
from protocol.contract import Contract
from sim.engine.network import Network, Workspace
from sim.engine.objective import Hand, Objective
from sim.engine.stack import Floats, Index, Stack, Table


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows of G centers, shuffled, padded to n rows."""

    rows: torch.Tensor
    """Row numbers in the training table, int64 ``(G, n)``; padding repeats a row of the center."""
    x: torch.Tensor
    """``(G, n, d)``."""
    y: torch.Tensor
    """``(G, n)``."""
    levels: list[torch.Tensor]
    """Dropout bytes, uint8 ``(G, n, width)`` per hidden layer."""


class Trainer:
    """Trains chunks of centers; holds what does not change from round to round."""

    def __init__(
        self,
        contract: Contract,
        network: Network,
        table: Table,
        seeds: Sequence[int],
        ids: Sequence[str],
    ) -> None:
        self._training = contract.training
        self._network = network
        self._table = table
        self._seeds = seeds
        self._ids = ids

    def train(
        self, stack: Stack, t: int, members: Index, objective: Objective | None, space: Workspace
    ) -> Floats:
        """Train the ``members``, ascending, in place; mean loss per patient of the last epoch."""
        together = members[-1] - members[0] == members.size - 1
        if together:
            place = slice(int(members[0]), int(members[-1]) + 1)
            part = Stack(
                stack.weights[place],
                stack.exp_avg[place],
                stack.exp_avg_sq[place],
                stack.steps[place],
            )
        else:
            index = torch.from_numpy(members)
            part = Stack(
                stack.weights[index],
                stack.exp_avg[index],
                stack.exp_avg_sq[index],
                stack.steps[index],
            )
        hand = Hand() if objective is None else objective.hand(members, t)
        losses = self._local_step(part, t, members, hand, space)
        self._require_finite(part, t, members, losses)
        if not together:
            stack.weights[index] = part.weights
            stack.exp_avg[index] = part.exp_avg
            stack.exp_avg_sq[index] = part.exp_avg_sq
            stack.steps[index] = part.steps
        return losses

    def _local_step(
        self, part: Stack, t: int, members: Index, hand: Hand, space: Workspace
    ) -> Floats:
        sizes = self._table.sizes[members]
        size, model = self._training.batch_size, self._network.model
        draws = [
            Draws(self._seeds[center], t, int(rows), model.hidden, model.dropout)
            for center, rows in zip(members, sizes, strict=True)
        ]
        width = int(sizes.max())
        loss = torch.zeros(members.size)
        for number in range(self._training.epochs):
            epoch = self._epoch(members, sizes, draws, space)
            last = number == self._training.epochs - 1
            for first in range(0, width, size):
                end = min(first + size, width)
                real = torch.from_numpy(np.arange(first, end) < sizes[:, None])
                share = real / real.sum(1, keepdim=True)
                logits = self._step(part, epoch, slice(first, end), share, hand, space)
                if last:
                    each = functional.binary_cross_entropy_with_logits(
                        logits, epoch.y[:, first:end], reduction="none"
                    )
                    loss += (each * real).sum(1)
        found: Floats = loss.numpy() / sizes
        return found

    def _epoch(
        self, members: Index, sizes: Index, draws: Sequence[Draws], space: Workspace
    ) -> Epoch:
        hidden, width = self._network.model.hidden, int(sizes.max())
        starts = self._table.start[members]
        rows = np.repeat(starts[:, None], width, axis=1)
        shape = (members.size, width)
        levels = [
            space.take(f"levels {layer}", (*shape, wide), torch.uint8)
            for layer, wide in enumerate(hidden if self._network.dropped else ())
        ]
        into: list[NDArray[np.uint8]] = [layer.numpy() for layer in levels]
        for place, (count, draw) in enumerate(zip(sizes.tolist(), draws, strict=True)):
            order, bytes_ = draw.epoch()
            rows[place, :count] += order.numpy()
            for target, source in zip(into, by_layer(bytes_, count, hidden), strict=True):
                target[place, :count] = source
        index = torch.from_numpy(rows)
        x = space.take("x", (*shape, self._table.x.shape[1]))
        torch.index_select(self._table.x, 0, index.flatten(), out=x.flatten(0, 1))
        return Epoch(index, x, self._table.y[index], levels)

    def _step(
        self,
        part: Stack,
        epoch: Epoch,
        batch: slice,
        share: torch.Tensor,
        hand: Hand,
        space: Workspace,
    ) -> torch.Tensor:
        """One optimizer step of all members; returns the logits before it, ``(G, b)``."""
        network = self._network
        weights = hand.weights(part.weights)
        x, y = epoch.x[:, batch], epoch.y[:, batch]
        activations, logits = network.forward(
            weights, x, [layer[:, batch] for layer in epoch.levels], space
        )
        # Padding has no share in the loss, so all its gradients vanish.
        delta = (torch.sigmoid(logits) - y) * share
        hand.at_logits(logits, epoch.rows[:, batch], share, delta)
        extra = None
        if hand.reads_representation:
            extra = torch.zeros_like(activations[-1])
            hand.at_representation(activations[-1], epoch.rows[:, batch], share, extra)
        gradient = space.take("gradient", tuple(weights.shape))
        network.backward(weights, activations, delta, extra, gradient, space)
        self._adam(part, hand.at_parameters(part.weights, gradient))
        return logits

    def _adam(self, part: Stack, gradient: torch.Tensor) -> None:
        part.steps += 1
        tensors = (part.weights, gradient, part.exp_avg, part.exp_avg_sq)
        counts = part.steps.to(torch.float32)
        if bool((part.steps == part.steps[0]).all()):
            lists, steps = [[tensor] for tensor in tensors], [counts[0]]
        else:
            lists, steps = [list(tensor.unbind()) for tensor in tensors], list(counts.unbind())
        weights, gradients, exp_avgs, exp_avg_sqs = lists
        # One pass over memory instead of seven; ``torch.optim`` reaches it only through parameter
        # objects with states of their own. A test holds it to the optimizer of the daemon.
        torch._fused_adam_(
            weights,
            gradients,
            exp_avgs,
            exp_avg_sqs,
            [],
            steps,
            lr=self._training.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self._training.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def _require_finite(self, part: Stack, t: int, members: Index, losses: Floats) -> None:
        sums = part.weights.sum(1).numpy()
        bad = np.flatnonzero(~(np.isfinite(sums) & np.isfinite(losses)))
        if bad.size:
            raise TrainingDiverged(
                f"{self._ids[members[bad[0]]]}, local step of round {t}: found loss "
                f"{losses[bad[0]]}, allowed: finite weights; training.learning_rate is "
                f"{self._training.learning_rate:g}, try a smaller one"
            )
