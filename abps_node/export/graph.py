"""The ONNX graph of a model: columns of a table in, probability out, preprocessing inside.

One input for each feature, shape ``(patients, 1)``, under the feature's name. Numbers are double,
with NaN for a missing value; features with levels are text, trimmed, where "", "NA", "NaN" and
"nan" are missing. Arithmetic is that of ``abps_node.data.encode``: in double precision up to the
standardized value, float32 behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from abps_node.data.encode import FARTHEST, Scale
from abps_node.data.table import MISSING
from abps_node.trained import TrainedModel
from protocol.contract import Feature

OPSET: Final = 17
ML_OPSET: Final = 3
IR_VERSION: Final = 8
"""Old enough for every ONNX Runtime since 1.12."""


def is_text(feature: Feature) -> bool:
    """Whether the graph takes this feature as text; else as double."""
    return feature.levels is not None


def missing_markers(feature: Feature) -> list[str]:
    """Texts that mean «missing» in a feature with levels."""
    return [marker for marker in MISSING if marker not in (feature.levels or ())]


def output_names(features: Sequence[Feature]) -> tuple[str, str]:
    """Names of the outputs, log-odds and probability; no feature has either."""
    names = {feature.name for feature in features}
    mark = ""
    while {f"log_odds{mark}", f"probability{mark}"} & names:
        mark += "_"
    return f"log_odds{mark}", f"probability{mark}"


@dataclass
class _Graph:
    """Nodes and constants as they come; every inner name is new."""

    prefix: str
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(
        self, kind: str, *inputs: str, out: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """One node with one output, whose name is returned."""
        name = out or f"{self.prefix}{len(self.nodes)}"
        node = helper.make_node(kind, list(inputs), [name], domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: Any, kind: Any) -> str:
        """A constant of this numpy type."""
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def to_float(self, name: str) -> str:
        """As float32, what the network reads."""
        return self.add("Cast", name, to=TensorProto.FLOAT)


def build_graph(model: TrainedModel) -> onnx.ModelProto:
    """The checked graph; raises ``onnx.checker.ValidationError`` if it were none."""
    features = model.encoder.features
    log_odds, probability = output_names(features)
    graph = _Graph(_unused_prefix(features))
    columns: list[str] = []
    for feature, scale in zip(features, model.encoder.scales, strict=True):
        columns += _columns(graph, feature, scale)
    x = graph.add("Concat", *columns, axis=1)
    parameters = [part.numpy() for part in model.mlp.split(model.weights)]
    weights = list(zip(parameters[::2], parameters[1::2], strict=True))
    for number, (weight, bias) in enumerate(weights):
        constants = (graph.constant(weight, np.float32), graph.constant(bias, np.float32))
        x = graph.add("Gemm", x, *constants, transB=1)
        if number < len(weights) - 1:
            x = graph.add("Relu", x)
    graph.add("Squeeze", x, graph.constant([1], np.int64), out=log_odds)
    graph.add("Sigmoid", log_odds, out=probability)
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "abps",
            [_input(feature) for feature in features],
            [_output(name) for name in (log_odds, probability)],
            initializer=graph.constants,
        ),
        producer_name="abps-node",
        ir_version=IR_VERSION,
        opset_imports=[
            helper.make_opsetid("", OPSET),
            helper.make_opsetid("ai.onnx.ml", ML_OPSET),
        ],
    )
    helper.set_model_props(
        made,
        {
            "outcome": model.contract.data.label,
            "center": model.center,
            "round": str(model.record.round),
            "contract": model.contract.digest(),
        },
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def _unused_prefix(features: Sequence[Feature]) -> str:
    prefix = "abps:"
    while any(feature.name.startswith(prefix) for feature in features):
        prefix = f"_{prefix}"
    return prefix


def _input(feature: Feature) -> Any:
    kind = TensorProto.STRING if is_text(feature) else TensorProto.DOUBLE
    return helper.make_tensor_value_info(feature.name, kind, ["patients", 1])


def _output(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["patients"])


def _columns(graph: _Graph, feature: Feature, scale: Scale) -> list[str]:
    """What the encoder makes of one feature, as float32 ``(patients, …)``."""
    if feature.kind == "categorical":
        return _one_hot(graph, feature)
    x = feature.name
    if is_text(feature):
        x = graph.add("Cast", _coded(graph, feature), to=TensorProto.DOUBLE)
    missing = graph.add("IsNaN", x)
    x = graph.add("Where", missing, graph.constant(scale.fill, np.float64), x)
    x = graph.add("Sub", x, graph.constant(scale.mean, np.float64))
    x = graph.add("Div", x, graph.constant(scale.std, np.float64))
    ends = (graph.constant(end, np.float64) for end in (-FARTHEST, FARTHEST))
    columns = [graph.to_float(graph.add("Clip", x, *ends))]
    return [*columns, graph.to_float(missing)] if feature.missing_indicator else columns


def _coded(graph: _Graph, feature: Feature) -> str:
    """A binary feature with two levels as 0, 1, and NaN for all other texts."""
    return graph.add(
        "LabelEncoder",
        feature.name,
        domain="ai.onnx.ml",
        keys_strings=feature.levels,
        values_floats=[0.0, 1.0],
        default_float=float("nan"),
    )


def _one_hot(graph: _Graph, feature: Feature) -> list[str]:
    """One column for each level, and one for everything else."""
    levels = feature.levels or []
    code = graph.add(
        "LabelEncoder",
        feature.name,
        domain="ai.onnx.ml",
        keys_strings=levels,
        values_int64s=list(range(len(levels))),
        default_int64=len(levels),
    )
    every = graph.constant([list(range(len(levels) + 1))], np.int64)
    columns = [graph.to_float(graph.add("Equal", code, every))]
    if feature.missing_indicator:
        markers = missing_markers(feature)
        missing = graph.add(
            "LabelEncoder",
            feature.name,
            domain="ai.onnx.ml",
            keys_strings=markers,
            values_floats=[1.0] * len(markers),
            default_float=0.0,
        )
        columns.append(missing)
    return columns
