"""Local objectives beyond plain cross-entropy, written twice: as a loss, and as its gradient.

The sequential engine differentiates the loss; the batched one adds the gradient that was derived by
hand. A test holds the two together for every objective.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from abps_node.learning.local_step import Loss
from sim.engine.stack import Index


class Hand:
    """The gradient of an objective for G centers at once; as it stands here, nothing is added."""

    reads_representation = False
    """Whether ``at_representation`` is wanted."""

    def weights(self, parameters: torch.Tensor) -> torch.Tensor:
        """The network's weights ``(G, P)`` of this step, of the parameters ``(G, Q)``."""
        return parameters

    def at_logits(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor,
    ) -> None:
        """Change the gradient ``(G, b)`` of the ``logits``, that of the cross-entropy, in place.

        ``rows`` ``(G, b)`` number rows of the training table; ``share`` ``(G, b)`` is 1/(rows of
        the batch), 0 for padding.
        """

    def at_representation(
        self,
        activations: torch.Tensor,
        rows: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor,
    ) -> None:
        """Add to the gradient ``(G, b, h)`` of the last hidden layer's ``activations``, in place.

        These are up to the factor of dropout what the output layer sees.
        """

    def at_parameters(self, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Gradient ``(G, Q)`` of the parameters, of that of the weights ``(G, P)``.

        May change ``gradient`` in place.
        """
        return gradient


class Objective(ABC):
    """What the centers minimize in one round."""

    @abstractmethod
    def loss(self, center: int, t: int) -> Loss:
        """One center's loss in round ``t``, for differentiation by torch."""

    @abstractmethod
    def hand(self, centers: Index, t: int) -> Hand:
        """The gradient by hand for the local step of these centers, ``(G,)``, in round ``t``."""
