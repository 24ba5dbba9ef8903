"""On real patients: no objective of a mini-batch gets worse along the Pareto direction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from abps_node.aims import Aims, Objective
from abps_node.data import column_names, prepare_center, read_patients, split_rows, table_in_memory
from abps_node.data.objectives import objective_data
from abps_node.learning.adam import Adam
from abps_node.learning.objective_losses import losses_of, rows_of
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.objective_step import gradients, pareto_direction
from protocol.contract import Feature
from tests.support.objectives import masks_of
from tests.support.rhc_objectives import (
    ALARM,
    FAIR,
    MORTALITY,
    PRIVATE,
    STAY,
    contract,
    features,
    units,
    with_stay,
)

BATCH = 128


@pytest.mark.parametrize("kind", ["mlp", "fedcare"])
@pytest.mark.parametrize("wanted", [(MORTALITY, STAY), (MORTALITY, STAY, FAIR, ALARM)])
def test_common_descent_on_real_mini_batches(kind: str, wanted: tuple[dict[str, object]]) -> None:
    agreed = contract(kind, min_peers=1)
    private = tuple(Feature.model_validate(features()[name]) for name in PRIVATE["copd"])
    aims = Aims(tuple(Objective.model_validate(each) for each in wanted), private)
    names = list(dict.fromkeys([*column_names(agreed.data), *aims.columns]))
    table = table_in_memory(with_stay(units()["copd"], 1), names, "copd")
    patients = read_patients(agreed.data, table)
    center = prepare_center(agreed, "copd", patients)
    split = split_rows(agreed.data, "copd", patients.labels, patients.groups)
    data = objective_data(aims, table, split)
    assert np.isnan(data.train.y[:, 1]).any(), "some stays are missing"
    rows = rows_of(aims, torch.from_numpy(center.train.x), data.train, data, with_private=True)
    net = ObjectiveNet.of(
        agreed, data.train.private.shape[1], [objective.name for objective in aims.objectives]
    )
    losses, weights, adam = losses_of(aims, data.train), net.initial(1), Adam.fresh(net.size)
    seen = conflicts = 0
    for epoch in range(3):
        masks = masks_of(net, rows.count, seed=epoch)
        for begin in range(0, rows.count, BATCH):
            end = min(begin + BATCH, rows.count)
            batch, drawn = rows.between(begin, end), [part[begin:end] for part in masks]
            found = gradients(net, losses, weights, batch, drawn)
            direction, mu, gram = pareto_direction(found, "none")
            slopes = found.trunk.double() @ direction.double()
            least = float(direction.double() @ direction.double())
            # Every objective falls at least as fast as the direction is long, squared.
            assert float(slopes.min()) >= least - 1e-6 * gram.trace()
            assert mu.sum() == pytest.approx(1.0)
            seen, conflicts = seen + 1, conflicts + bool(gram.min() < 0)
            adam.update(weights, torch.cat([direction, found.heads]), 1e-3, 1e-5)
    assert seen >= 9 and conflicts > 0, "real objectives do conflict"
