"""Whether ONNX Runtime computes what PyTorch computes, on real rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from abps_node.data.features import RawFeatures
from abps_node.errors import NodeError
from abps_node.export.contents import TOLERANCE, Agreement
from abps_node.export.graph import is_text, missing_markers, output_names
from abps_node.learning.utility import probability
from abps_node.trained import TrainedModel
from protocol.contract import Feature


def compare(graph: bytes, model: TrainedModel, features: RawFeatures) -> Agreement:
    """Run both; raises ``NodeError`` if they differ by more than ``TOLERANCE``."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = list(output_names(model.encoder.features))
    log_odds, likely = session.run(names, feeds(model.encoder.features, features))
    expected = model.log_odds(features)
    found = Agreement(
        rows=int(expected.size),
        probability=float(np.abs(likely - probability(expected)).max()),
        log_odds=float((np.abs(log_odds - expected) / np.maximum(1.0, np.abs(expected))).max()),
    )
    if not max(found.probability, found.log_odds) <= TOLERANCE:
        raise NodeError(
            f"the exported graph differs from the model: probability by {found.probability:.1e}, "
            f"log-odds by {found.log_odds:.1e}, allowed: {TOLERANCE:g}; nothing was written"
        )
    return found


def feeds(features: tuple[Feature, ...], raw: RawFeatures) -> dict[str, Any]:
    """Input name to array ``(patients, 1)``, as the graph wants it."""
    return {feature.name: _feed(feature, raw)[:, None] for feature in features}


def _feed(feature: Feature, raw: RawFeatures) -> Any:
    values = raw.column(feature.name)
    if not is_text(feature):
        return values
    levels = feature.levels or []
    texts = np.full(values.size, missing_markers(feature)[0], dtype=object)
    for code, level in enumerate(levels):
        texts[values == code] = level
    undeclared = raw.undeclared.get(feature.name)
    if undeclared is not None:
        other = values == len(levels)
        texts[other] = undeclared[other]
    return texts
