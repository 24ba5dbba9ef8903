"""Whatever the schema, the graph computes what encoder and network compute."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abps_node.data import Encoder
from abps_node.data.encode import Scale
from abps_node.data.features import RawFeatures
from abps_node.export.agreement import compare
from abps_node.export.graph import build_graph, output_names
from abps_node.export.measures import Bin, calibration, enough
from abps_node.export.picture import calibration_plot
from abps_node.learning.model import Mlp
from abps_node.trained import TrainedModel
from protocol.contract import Card, Contract, Data, Feature
from protocol.events import ModelRef
from protocol.record import RoundRecord

NAMES = st.one_of(
    st.sampled_from(["probability", "log_odds", "abps:0", "abps:c0", "patients", "a b", "é|`"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
)
LEVELS = st.sampled_from([["F", "M"], ["NA", ""], ["nan", "x y"], ["ä", "0"]])


@st.composite
def features(draw: st.DrawFn) -> list[Feature]:
    made = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)):
        kind = draw(st.sampled_from(["continuous", "binary", "categorical"]))
        levels = (
            draw(LEVELS)
            if kind == "categorical" or (kind == "binary" and draw(st.booleans()))
            else None
        )
        indicator = draw(st.booleans())
        made.append(Feature(name=name, kind=kind, levels=levels, missing_indicator=indicator))
    return made


def values_of(feature: Feature, rng: np.random.Generator, rows: int) -> np.ndarray:
    if feature.kind == "continuous":
        values = rng.normal(0, 10.0 ** rng.integers(-3, 6), rows)
    else:
        values = rng.integers(0, 3 if feature.kind == "categorical" else 2, rows).astype(float)
    return np.where(rng.random(rows) < 0.2, np.nan, values)


@settings(max_examples=25, deadline=None)
@given(features(), st.integers(0, 2**32))
def test_graph_and_model_agree(schema: list[Feature], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 20
    values = np.array([values_of(feature, rng, rows) for feature in schema])
    unknown = {
        feature.name: np.where(values[number] == 2, "elsewhere", None).astype(object)
        for number, feature in enumerate(schema)
        if feature.kind == "categorical"
    }
    raw = RawFeatures(tuple(feature.name for feature in schema), values, unknown)
    contract = Contract(name="made", data=Data(label="\x00outcome", features=schema))
    encoder = Encoder.fit(contract.data, raw, np.arange(rows))
    mlp = Mlp((len(encoder.inputs), 6, 3, 1), 0.0, 1)
    model = TrainedModel(
        center="north",
        contract=contract,
        which="best",
        record=RoundRecord.model_construct(round=1),
        file=ModelRef("none", ""),
        encoder=encoder,
        mlp=mlp,
        weights=4.0 * mlp.initial(seed),
    )
    found = compare(build_graph(model).SerializeToString(), model, raw)
    assert found.rows == rows
    assert set(output_names(tuple(schema))).isdisjoint(raw.names)


def test_scales_survive_into_the_graph_in_double() -> None:
    """A column whose mean is large against its spread: float32 would lose it."""
    schema = [Feature(name="x", kind="continuous")]
    values = np.array([[1e9 + number for number in range(20)]])
    raw = RawFeatures(("x",), values, {})
    contract = Contract(name="made", data=Data(label="y", features=schema))
    mlp = Mlp((1, 4, 1), 0.0, 1)
    scale = Scale(fill=1e9, mean=float(values.mean()), std=float(values.std()))
    model = TrainedModel(
        "north",
        contract,
        "best",
        RoundRecord.model_construct(round=1),
        ModelRef("none", ""),
        Encoder(tuple(schema), (scale,)),
        mlp,
        torch.ones(mlp.size),
    )
    compare(build_graph(model).SerializeToString(), model, raw)
    assert np.unique(model.log_odds(raw)).size > 10


@given(st.integers(0, 400), st.integers(0, 2**32), st.floats(0.0, 1.0))
@settings(deadline=None)
def test_every_bin_of_the_calibration_may_be_told(rows: int, seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    y, log_odds = (rng.random(rows) < rate).astype(float), rng.normal(0, 2, rows).round(1)
    bins = calibration(log_odds, y, Card())
    assert all(enough(each.rows, round(each.observed * each.rows), Card()) for each in bins)
    assert sum(each.rows for each in bins) in (0, rows)
    assert all(each.low <= each.observed <= each.high for each in bins)
    assert len(bins) <= 10


def test_no_control_character_gets_into_the_picture() -> None:
    bins = [Bin(20, 0.2, 0.25, 0.1, 0.4), Bin(20, 0.6, 0.5, 0.3, 0.7)]
    picture = calibration_plot(bins, "died\x00 <b> $x$\x1b")
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture).iter()}
    assert {"svg", "path", "text"} <= names
