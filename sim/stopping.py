"""Early stop and the best model, by the network's mean utility or by each center's own.

The paper does not say whose AUROC stops ABPS-X (section 6.4). Scope ``network`` is a simulator's:
one mean, one stop for all. Scope ``center`` is what daemons can do: each center has its own
patience and its own best model; who stops takes no further part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.merging import Best
from sim.engine.stack import Floats

Scope = Literal["network", "center"]


class EarlyStop:
    """Judges round after round; without ``patience`` nothing stops and the last model counts."""

    def __init__(
        self, scope: Scope, patience: int | None, metrics: Sequence[str], wanted: str
    ) -> None:
        """``metrics`` are those of the centers; the network's mean is over who has ``wanted``."""
        self._scope = scope
        self._patience = patience
        counted = np.array([metric == wanted for metric in metrics])
        self._counted = counted if counted.any() else np.ones_like(counted)
        self._network = Best()
        self._centers = [Best() for _ in metrics]
        self._models: torch.Tensor | None = None
        self.active: NDArray[np.bool_] = np.ones(len(metrics), dtype=bool)
        """Centers that go on, ``(C,)``."""

    @property
    def over(self) -> bool:
        """Whether nobody goes on."""
        return not self.active.any()

    @property
    def best_rounds(self) -> list[int]:
        """The round of each center's best model; 0 before the first round."""
        if self._scope == "network":
            return [self._network.round] * len(self._centers)
        return [best.round for best in self._centers]

    def judge(self, t: int, values: Floats, models: torch.Tensor) -> None:
        """Take in round ``t``: utilities ``(C,)`` and models ``(C, P)`` of the active centers."""
        if self._patience is None:
            return
        if self._scope == "network":
            self._judge_all(t, float(values[self._counted].mean()), models)
        else:
            self._judge_each(t, values, models)

    def chosen(self, models: torch.Tensor) -> torch.Tensor:
        """The models to report: the best ones under patience, else the present ``models``."""
        return models if self._models is None else self._models

    def _judge_all(self, t: int, value: float, models: torch.Tensor) -> None:
        self._network = self._network.after(t, value)
        if self._network.round == t:
            self._models = models.clone()
        if self._network.exhausted(self._patience):
            self.active[:] = False

    def _judge_each(self, t: int, values: Floats, models: torch.Tensor) -> None:
        rows = np.flatnonzero(self.active)
        for row in rows:
            self._centers[row] = self._centers[row].after(t, float(values[row]))
            if self._centers[row].exhausted(self._patience):
                self.active[row] = False
        better = torch.tensor([row for row in rows if self._centers[row].round == t])
        if self._models is None:
            self._models = models.clone()
        elif better.numel():
            self._models[better] = models[better]
