"""The contract: what its hash covers, what presets supply, which values are refused and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from protocol.contract import Contract, Policy
from protocol.presets import PRESETS
from tests.support.contracts import contract_values, small_contract

Path = tuple[str | int, ...]
OLD_DIGEST = "8db286cef7c8033b6d7fa471ae9a21bfaad03da5058e0ec25c7bf5d01becdb53"
"""Of the small contract, by the version that knew one kind of model."""
CONTRACT = small_contract(
    {"preset": "abps-x"},
    group="patient",
    date="admitted",
    card={"features": ["diabetes"]},
)


def leaves(value: Any, path: Path = ()) -> list[Path]:
    """Paths to every value that is not a section or a list of sections."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [leaf for i, inner in enumerate(value) for leaf in leaves(inner, (*path, i))]
    return [path]


def get(values: Any, path: Path) -> Any:
    for step in path:
        values = values[step]
    return values


def replaced(values: Any, path: Path, new: Any) -> Any:
    copy = json.loads(json.dumps(values))
    get(copy, path[:-1])[path[-1]] = new
    return copy


def literal_choices(path: Path) -> tuple[Any, ...]:
    """The words that a field allows, if it is a choice of words."""
    model: Any = Contract
    for step in path:
        if isinstance(step, int):
            continue
        annotation = model.model_fields[step].annotation
        inner = get_args(annotation) or (annotation,)
        nested = [a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)]
        if nested:
            model = nested[0]
        elif get_origin(annotation) is Literal:
            return get_args(annotation)
    return ()


def alternatives(value: Any, path: Path) -> list[Any]:
    """Other values worth trying in the place of this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value - 0.01, value + 0.01]
    if isinstance(value, list):
        return [value[:-1], [*value, "another"], [*value, 7]]
    if isinstance(value, str):
        return [*(word for word in literal_choices(path) if word != value), value + "x"]
    return [1, 0.5, "another", ["another"], True]


VALUES = CONTRACT.model_dump(mode="json")
LEAVES = leaves(VALUES)
FIXED = {("protocol_version",), ("policy", "preset")}
# The keys of one feature constrain each other; whole features are compared further below.
SINGLE = [path for path in LEAVES if path[:2] != ("data", "features")]


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: ".".join(map(str, path)))
def test_the_digest_changes_with_every_field(path: Path) -> None:
    digests = set()
    for new in alternatives(get(VALUES, path), path):
        try:
            digests.add(Contract.model_validate(replaced(VALUES, path, new)).digest())
        except ValidationError:
            continue
    if path in FIXED:
        assert digests <= {CONTRACT.digest()}
    elif path == ("model", "kind"):
        # The other kind has another form of `hidden`, and heads of three layers.
        fedcare = {"kind": "fedcare", "hidden": [4, 4, 3]}
        values = replaced(replaced(VALUES, ("model",), fedcare), ("policy", "head_layers"), 3)
        assert Contract.model_validate(values).digest() != CONTRACT.digest()
    elif path == ("policy", "tau_sim"):
        # Excludes keep_fraction, which stands here.
        values = replaced(VALUES, ("policy", "keep_fraction"), None)
        with_tau = replaced(values, path, 0.5)
        pair = {Contract.model_validate(v).digest() for v in (values, with_tau)}
        assert len(pair | {CONTRACT.digest()}) == 3
    else:
        assert digests and CONTRACT.digest() not in digests


def test_the_digest_changes_with_every_part_of_a_feature() -> None:
    features: list[dict[str, Any]] = [
        {"name": "f", "kind": "continuous"},
        {"name": "g", "kind": "continuous"},
        {"name": "f", "kind": "continuous", "unit": "mmHg"},
        {"name": "f", "kind": "continuous", "missing_indicator": True},
        {"name": "f", "kind": "binary"},
        {"name": "f", "kind": "binary", "levels": ["no", "yes"]},
        {"name": "f", "kind": "binary", "levels": ["yes", "no"]},
        {"name": "f", "kind": "categorical", "levels": ["no", "yes"]},
        {"name": "f", "kind": "categorical", "levels": ["no", "yes", "maybe"]},
    ]
    contracts = [small_contract(features=[feature]) for feature in features]
    contracts += [small_contract(features=features[:2]), small_contract(features=features[1::-1])]
    assert len({contract.digest() for contract in contracts}) == len(contracts)


def test_contracts_from_before_a_key_keep_their_hash() -> None:
    assert small_contract().digest() == OLD_DIGEST


@pytest.mark.parametrize(
    ("model", "head_layers", "said"),
    [
        ({"kind": "fedcare", "hidden": [8, 8]}, 3, "hidden: found"),
        ({"kind": "fedcare", "hidden": [8, 6, 4]}, 3, "hidden: found"),
        ({"kind": "fedcare"}, 1, "policy.head_layers: found 1, allowed: 3"),
    ],
)
def test_fedcare_has_its_own_form(model: dict[str, Any], head_layers: int, said: str) -> None:
    values = replaced(replaced(VALUES, ("model",), model), ("policy", "head_layers"), head_layers)
    with pytest.raises(ValidationError, match=said):
        Contract.model_validate(values)


def test_the_walk_over_the_fields_reached_all_sections() -> None:
    sections = {path[0] for path in LEAVES}
    assert sections == set(Contract.model_fields)
    for section in ("data", "model", "training", "policy", "pacing"):
        model = type(getattr(CONTRACT, section))
        assert {path[1] for path in LEAVES if path[0] == section} == set(model.model_fields)


def test_the_digest_is_the_same_whatever_the_order_of_keys() -> None:
    def backwards(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: backwards(inner) for key, inner in reversed(value.items())}
        return value

    assert Contract.model_validate(backwards(VALUES)).digest() == CONTRACT.digest()
    assert Contract.model_validate_json(CONTRACT.model_dump_json()).digest() == CONTRACT.digest()
    assert len(CONTRACT.digest()) == 64


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "import sys; from protocol.contract import Contract; "
        "print(Contract.model_validate_json(sys.stdin.read()).digest())"
    )
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", code],
            input=CONTRACT.model_dump_json(),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == CONTRACT.digest()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_same_contract_as_its_values_written_out(name: str) -> None:
    assert PRESETS[name].keys() <= Policy.model_fields.keys(), "a preset sets unknown keys"
    named = small_contract({"preset": name})
    assert small_contract({**PRESETS[name]}).digest() == named.digest()
    for key, value in PRESETS[name].items():
        assert getattr(named.policy, key) == value


def test_presets_differ_from_each_other() -> None:
    assert len({small_contract({"preset": name}).digest() for name in PRESETS}) == len(PRESETS)


def test_what_stands_beside_a_preset_wins() -> None:
    policy = Policy.model_validate({"preset": "abps-x", "kappa": 2, "rounds": 7})
    assert (policy.kappa, policy.rounds) == (2, 7)
    assert (policy.head_layers, policy.momentum) == (2, 0.5), "the rest stays the preset's"


def test_a_fixed_threshold_replaces_the_calibration_of_a_preset() -> None:
    policy = Policy.model_validate({"preset": "abps-x", "tau_sim": 0.9})
    assert (policy.tau_sim, policy.keep_fraction) == (0.9, None)


def test_the_defaults_are_the_papers() -> None:
    policy = Policy()
    assert (policy.kappa, policy.epsilon, policy.tau_acc, policy.rounds) == (3, 0.1, 0.5, 50)
    assert policy.gamma**2 == pytest.approx(2.0)
    assert (policy.phi_min, policy.phi_max) == (-0.1, 0.1)
    assert (policy.prior_alpha, policy.prior_beta) == (1.0, 1.0)
    x = Policy(preset="abps-x")
    assert (x.head_layers, x.wire_dtype, x.kappa, x.momentum) == (2, "bfloat16", 1, 0.5)
    assert (x.goal, x.card, x.keep_fraction, x.keep) == (
        "homogeneity",
        "enriched",
        0.25,
        "per-center",
    )
    assert (x.rounds, x.patience) == (100, 10)


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("policy", "preset", "abps-y", "found 'abps-y', allowed: abps, abps+p"),
        ("policy", "preset", ["abps"], "valid string"),
        ("policy", "kapa", 3, "Extra inputs"),
        ("policy", "kappa", 0, "greater than or equal to 1"),
        ("policy", "kappa", "3", "valid integer"),
        ("policy", "kappa", 3.0, "valid integer"),
        ("policy", "kappa", True, "valid integer"),
        ("policy", "epsilon", 1.5, "found 1.5, allowed: 0 to 1 with the constant schedule"),
        ("policy", "epsilon", -0.1, "greater than or equal to 0"),
        ("policy", "epsilon_schedule", "linear", "'constant', 'c/sqrt(T)' or 'min(1,c/t)'"),
        ("policy", "gamma", float("nan"), "finite number"),
        ("policy", "gamma", float("inf"), "finite number"),
        ("policy", "goal", "fun", "'homogeneity', 'diversity' or 'alignment'"),
        ("policy", "keep_fraction", 0.0, "greater than 0"),
        ("policy", "keep_fraction", 1.1, "less than or equal to 1"),
        ("policy", "phi_min", 0.0, "less than 0"),
        ("policy", "momentum", 1.0, "less than 1"),
        ("policy", "head_layers", 3, "found 3, allowed: at most 2"),
        ("policy", "prior_alpha", 0.0, "greater than 0"),
        ("model", "hidden", [], "at least 1 item"),
        ("model", "hidden", [128, 0], "greater than or equal to 1"),
        ("model", "dropout", 1.0, "less than 1"),
        ("training", "learning_rate", 0.0, "greater than 0"),
        ("pacing", "negotiation_s", 0.0, "greater than 0"),
        ("data", "label", "age", "label: 'age' is also a feature"),
        ("data", "group", "age", "group: 'age' is also a feature"),
        ("data", "date", "age", "date: 'age' is also a feature"),
        ("data", "features", [], "at least 1 item"),
        ("data", "card", {"features": ["age"]}, "'age' is not a binary feature"),
        ("data", "card", {"features": ["nothing"]}, "'nothing' is not a binary feature"),
        ("data", "card", {"min_events": 0}, "greater than or equal to 1"),
    ],
)
def test_a_bad_value_is_named(section: str, key: str, value: object, says: str) -> None:
    values = contract_values()
    values.setdefault(section, {})[key] = value
    with pytest.raises(ValidationError) as caught:
        Contract.model_validate(values)
    errors = caught.value.errors()
    assert len(errors) == 1
    assert says in errors[0]["msg"]
    assert key in errors[0]["loc"] or key in errors[0]["msg"]


def test_two_thresholds_are_one_too_many() -> None:
    with pytest.raises(ValidationError, match="either tau_sim or keep_fraction, not both"):
        Policy(tau_sim=0.5, keep_fraction=0.25)


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ({"kind": "continuous", "levels": ["a"]}, "a continuous feature has none"),
        ({"kind": "categorical"}, "needs at least one level"),
        ({"kind": "categorical", "levels": []}, "needs at least one level"),
        ({"kind": "categorical", "levels": ["a", "a"]}, "each level may stand there once"),
        ({"kind": "binary", "levels": ["a", "b", "c"]}, "exactly two"),
        ({"kind": "ordinal"}, "'continuous', 'binary' or 'categorical'"),
    ],
)
def test_a_bad_feature_is_named(feature: dict[str, object], says: str) -> None:
    values = contract_values()
    values["data"]["features"].append({"name": "bad", **feature})
    with pytest.raises(ValidationError, match=says):
        Contract.model_validate(values)


def test_a_feature_stands_there_once() -> None:
    values = contract_values()
    values["data"]["features"].append(values["data"]["features"][0])
    with pytest.raises(ValidationError, match="'age' stands there twice"):
        Contract.model_validate(values)


def test_a_contract_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        CONTRACT.policy.kappa = 5
