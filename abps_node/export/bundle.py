"""The folder of an export: graph, preprocessing, card and plot, each from the same model."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from abps_node.config import CenterConfig
from abps_node.data import CenterData, load_with_patients, split_rows
from abps_node.errors import NodeError, StoreError
from abps_node.export.card import Facts, card
from abps_node.export.contents import collaboration, counts, inputs
from abps_node.export.measures import Bin, Measure, calibration, enough, measure
from abps_node.export.picture import calibration_plot
from abps_node.store.patients import require_same
from abps_node.store.reader import Reader
from abps_node.trained import Which, load_model
from protocol.randomness import derive_seed

GRAPH, PREPROCESSING, CARD, PLOT = (
    "model.onnx",
    "preprocessing.json",
    "MODEL_CARD.md",
    "calibration.svg",
)
FILES: Final = (GRAPH, PREPROCESSING, CARD, PLOT)
_PACKAGES: Final = ("abps-node", "torch", "numpy", "onnx", "onnxruntime")
_NEEDED: Final = (
    "abps export needs the packages onnx and onnxruntime, which are not installed: "
    "pip install 'abps-node[export]', or pip install onnx onnxruntime"
)


@dataclass(frozen=True)
class Export:
    """The files of an export, by name, and what is in them."""

    files: dict[str, bytes]
    facts: Facts


def export_model(config: CenterConfig, which: Which) -> Export:
    """Make all files of an export; writes nothing.

    Raises ``StoreError`` without a model or with another table than the state's, ``DataError`` for
    a table that cannot be read, ``NodeError`` if ONNX is not installed or disagrees with PyTorch.
    """
    try:
        from abps_node.export.agreement import compare
        from abps_node.export.graph import build_graph
    except ImportError as error:
        raise NodeError(_NEEDED) from error
    reader = Reader(config.state_dir)
    contract = config.federation.contract
    if reader.contract.digest() != contract.digest():
        raise StoreError(
            f"{reader.path}: found the state of contract {reader.contract.digest()[:12]}, allowed: "
            f"that of {config.federation.path}, {contract.digest()[:12]}"
        )
    model = load_model(config.state_dir, which)
    data, patients = load_with_patients(contract, config.id, config.data, config.aims)
    stored = reader.patients()
    if stored is not None and data.fingerprint is not None:
        require_same(reader.path, stored, data.fingerprint)
    graph = build_graph(model).SerializeToString()
    agreement = compare(graph, model, patients.features)
    rows = split_rows(contract.data, config.id, patients.labels, patients.groups)
    test = model.log_odds(patients.features.take(rows.test))
    measures, bins = _measured(config, data, test)
    limits = contract.data.card
    records = [entry.record for entry in reader.rounds()]
    facts = Facts(
        model=model,
        counts=counts(data, limits),
        measures=measures,
        bins=bins,
        inputs=inputs(model.encoder.features, patients, rows, limits),
        together=collaboration([each for each in records if each.round <= model.record.round]),
        agreement=agreement,
        versions={"Python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
        graph_sha256=hashlib.sha256(graph).hexdigest(),
        day=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    files = {GRAPH: graph, PREPROCESSING: _json(_preprocessing(facts))}
    if bins:
        files[PLOT] = calibration_plot(bins, contract.data.label)
    files[CARD] = card(facts, PLOT if bins else None).encode()
    return Export(files, facts)


def _measured(
    config: CenterConfig, data: CenterData, log_odds: Any
) -> tuple[list[Measure], list[Bin]]:
    """Nothing, where the test split is too small to be told of; two bins at least, or none."""
    y = data.test.y.astype(np.float64)
    limits = config.federation.contract.data.card
    if not enough(int(y.size), int(y.sum()), limits):
        return [], []
    # The seed of the center's own test report, so that its interval is the same.
    measures = measure(log_odds, y, derive_seed(config.seed, "bootstrap"))
    bins = calibration(log_odds, y, limits)
    return measures, bins if len(bins) > 1 else []


def _preprocessing(facts: Facts) -> dict[str, Any]:
    """What is inside the graph, for whoever wants to build it anew."""
    from abps_node.export.graph import is_text, missing_markers, output_names

    encoder = facts.model.encoder
    log_odds, likely = output_names(encoder.features)
    entries = []
    for feature, scale in zip(encoder.features, encoder.scales, strict=True):
        entry: dict[str, Any] = {
            "name": feature.name,
            "type": "string" if is_text(feature) else "double",
            "kind": feature.kind,
            "unit": feature.unit,
            "missing": missing_markers(feature) if is_text(feature) else "NaN",
        }
        if feature.levels is not None:
            entry["levels"] = feature.levels
        if feature.kind != "categorical":
            entry |= asdict(scale)
        entries.append({**entry, "missing_indicator": feature.missing_indicator})
    return {
        "about": "Each input has the shape (patients, 1). Numbers: fill where missing, then "
        "(x - mean) / std, cut off at ±1e6. Binary levels are 0 and 1 in their order. Categorical: "
        "one column for each level, one for everything else, missing included. A missing "
        "indicator is one more column behind its feature.",
        "outcome": facts.model.contract.data.label,
        "inputs": entries,
        "network_inputs": encoder.inputs,
        "outputs": {"log_odds": log_odds, "probability": likely},
        "contract": facts.model.contract.digest(),
        "graph_sha256": facts.graph_sha256,
    }


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
