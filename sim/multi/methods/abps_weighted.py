"""ABPS + Pareto with the plain mean of the objectives' gradients in the place of the Pareto step.

The control for what the Pareto step brings where clients have several tasks; stage 2 is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abps_node.aims import LocalStep
from sim.multi.methods.abps_pareto import AbpsPareto


@dataclass(frozen=True)
class AbpsWeighted(AbpsPareto):
    """The daemons with ``local_step = "weighted"``, all objectives alike."""

    local_step: ClassVar[LocalStep] = "weighted"
