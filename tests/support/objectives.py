"""Made outcomes and private inputs for everything that learns several objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from abps_node.aims import Aims, Objective
from abps_node.data import CenterData
from abps_node.data.encode import Encoder
from abps_node.data.objectives import NO_GROUP, ObjectiveData, ObjectiveReport, ObjectiveSplit
from abps_node.learning.draws import Draws, by_layer, dropped_levels, mask
from abps_node.learning.objective_losses import Losses, Rows, losses_of, rows_of
from abps_node.learning.objective_net import ObjectiveNet
from protocol.contract import Contract
from tests.support.learning import learning_contract, made_up_center

MORTALITY = Objective(name="mortality", kind="bce", column="died")
STAY = Objective(name="stay", kind="huber-log", column="days")
FAIR = Objective(name="fair", kind="fairness", column="died", group="sex")
CAREFUL = Objective(name="careful", kind="sensitivity", column="died")
THREE = (MORTALITY, STAY, FAIR)
PRIVATE = 2


def contract_of(kind: str = "mlp", **training: Any) -> Contract:
    """The small contract of the learning tests, with private heads."""
    fedcare = kind == "fedcare"
    model = {"kind": kind, "hidden": [8, 8, 5]} if fedcare else {}
    return learning_contract({"head_layers": 3 if fedcare else 1}, model, training)


def made_split(
    objectives: Sequence[Objective], x: Any, seed: int, private: int, missing: float
) -> ObjectiveSplit:
    """Outcomes that depend on the first two inputs; group and private inputs at random."""
    rng = np.random.default_rng(seed)
    rows = x.shape[0]
    columns = []
    for objective in objectives:
        if objective.binary:
            values = (x[:, 0] + rng.normal(size=rows) > 0.3).astype(np.float32)
        else:
            values = np.expm1(np.clip(1.5 + 0.7 * x[:, 1] + 0.3 * rng.normal(size=rows), 0, None))
        columns.append(np.where(rng.random(rows) < missing, np.nan, values))
    groups = np.stack(
        [
            rng.integers(0, 2, rows) if objective.group else np.full(rows, NO_GROUP)
            for objective in objectives
        ],
        axis=1,
    )
    inputs = rng.normal(size=(rows, private)).astype(np.float32)
    return ObjectiveSplit(inputs, np.stack(columns, axis=1).astype(np.float32), groups)


def made_objectives(
    objectives: Sequence[Objective],
    center: CenterData,
    private: int = PRIVATE,
    missing: float = 0.0,
    seed: int = 1,
) -> ObjectiveData:
    """What goes with the splits of a made center."""
    parts = [
        made_split(objectives, split.x, seed + place, private, missing)
        for place, split in enumerate((center.train, center.validation, center.test))
    ]
    medians = np.nanmedian(parts[0].y, axis=0)
    return ObjectiveData(
        *parts,
        encoder=Encoder((), ()),
        levels=tuple(("f", "m") if objective.group else () for objective in objectives),
        reports=tuple(
            ObjectiveReport(objective.name, objective.column, {}, {}, float(median))
            for objective, median in zip(objectives, medians, strict=True)
        ),
        constant=(),
    )


def net_and_rows(
    contract: Contract, aims: Aims, private: int = PRIVATE, missing: float = 0.0
) -> tuple[ObjectiveNet, Losses, Rows]:
    """The network of these aims and the training rows of a made center."""
    center = made_up_center(contract)
    data = made_objectives(aims.objectives, center, private, missing)
    names = [objective.name for objective in aims.objectives]
    rows = rows_of(aims, torch.from_numpy(center.train.x), data.train, data, with_private=True)
    return ObjectiveNet.of(contract, private, names), losses_of(aims, data.train), rows


def masks_of(net: ObjectiveNet, rows: int, seed: int = 1) -> list[torch.Tensor]:
    """Dropout masks of one epoch."""
    _, levels = Draws(seed, 1, rows, net.hidden, net.dropout).epoch()
    dropped = dropped_levels(net.dropout)
    return [mask(part, dropped) for part in by_layer(levels, rows, net.hidden)]
