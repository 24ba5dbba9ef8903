"""Small centers with made-up patients, for everything that learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from abps_node.data import CenterData, DataReport, Encoder, Split, SplitCounts
from abps_node.data.encode import Scale
from abps_node.learning.model import Mlp
from protocol.contract import Contract
from protocol.goal import CardCounts
from protocol.trunk import Vector

INPUTS = 6


def learning_contract(
    policy: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
) -> Contract:
    """Six continuous inputs and a network small enough for many tests."""
    features = [{"name": f"x{number}", "kind": "continuous"} for number in range(INPUTS)]
    return Contract.model_validate(
        {
            "name": "test",
            "data": {"label": "y", "features": features},
            "model": {"hidden": [8, 5], **(model or {})},
            "training": {"batch_size": 32, **(training or {})},
            "policy": policy or {},
        }
    )


def made_up(rows: int, seed: int, one_class: bool = False) -> Split:
    """Rows whose outcome depends on the first input."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, INPUTS)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=rows) > 0).astype(np.float32)
    return Split(x, np.zeros_like(y) if one_class else y)


def made_up_center(
    contract: Contract, seed: int = 1, rows: int = 97, validation: Split | None = None
) -> CenterData:
    """97 training rows are three batches of 32 and a last one of a single row."""
    splits = [made_up(rows, seed), validation or made_up(40, seed + 1), made_up(50, seed + 2)]
    counts = [SplitCounts(len(split.y), int(split.y.sum())) for split in splits]
    report = DataReport(
        rows=sum(part.rows for part in counts),
        positives=sum(part.positives for part in counts),
        train=counts[0],
        validation=counts[1],
        test=counts[2],
        inputs=INPUTS,
        missing={},
        unknown_levels={},
        constant=(),
        groups=None,
        dated=None,
        ignored=(),
    )
    encoder = Encoder(tuple(contract.data.features), (Scale(),) * INPUTS)
    told = CardCounts(counts[0].rows, counts[0].positives, mean_year=None, dated=0, prevalence=())
    return CenterData(*splits, card=(0.5, 4.0), counts=told, report=report, encoder=encoder)


def random_trunk(contract: Contract, seed: int) -> Vector:
    """A trunk as a partner might send it."""
    size = Mlp.of(contract).trunk.size
    return np.random.default_rng(seed).normal(0, 0.3, size).astype(np.float32)


def reference_network(model: Mlp, weights: torch.Tensor) -> torch.nn.Sequential:
    """The same model as plain torch modules, without dropout."""
    layers: list[torch.nn.Module] = []
    parts = model.split(weights.clone())
    for layer in range(0, len(parts), 2):
        linear = torch.nn.Linear(parts[layer].shape[1], parts[layer].shape[0])
        linear.load_state_dict({"weight": parts[layer], "bias": parts[layer + 1]})
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])
