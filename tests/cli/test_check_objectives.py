"""`abps check` names what is wrong with a center's own objectives, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abps_node.preflight import check_center
from tests.support.made_center import made_rows, make_center, write_rows
from tests.support.toml_files import center_tables, federation_tables, put

DEATH = {"name": "death", "kind": "bce", "column": "died"}
STAY = {"name": "stay", "kind": "huber-log", "column": "days"}
FAIR = {"name": "fair", "kind": "fairness", "column": "died", "group": "sex"}
LACTATE = {"name": "lactate", "kind": "continuous"}
Row = dict[str, Any]


def rows(edit: Callable[[int, Row], Row] | None = None) -> list[Row]:
    """The made patients with a length of stay, a sex, and a private laboratory value."""
    found = []
    for number, row in enumerate(made_rows()):
        more = {"days": 1.5 + number % 9, "sex": "fm"[number // 4 % 2], "lactate": number % 7}
        found.append(edit(number, {**row, **more}) if edit else {**row, **more})
    return found


def center(
    directory: Path,
    objectives: list[dict[str, Any]],
    private: list[dict[str, Any]] | None = None,
    edit: Callable[[int, Row], Row] | None = None,
    head_layers: int = 1,
    **own: Any,
) -> Path:
    federation, tables = federation_tables(), center_tables()
    put(federation, "contract.policy.head_layers", head_layers)
    tables |= {"objective": objectives, "private": private or [], **own}
    path = make_center(directory, federation=federation, center=tables)
    write_rows(directory / "patients.csv", rows(edit))
    return path


def problem(path: Path) -> str:
    lines = [line.finding for line in check_center(path) if line.severity == "problem"]
    assert len(lines) == 1, lines
    return lines[0]


def test_a_healthy_center_tells_its_objectives(tmp_path: Path) -> None:
    def without(number: int, row: Row) -> Row:
        return {**row, "days": ""} if number % 10 == 0 else row

    path = center(tmp_path, [DEATH, STAY, FAIR], [LACTATE], without)
    findings = check_center(path)
    assert [line for line in findings if line.severity == "problem"] == []
    texts = [line.finding for line in findings]
    for text in (
        "death (bce of died): rows with a value: train 140, validation 30, test 30; with label 1",
        "stay (huber-log of days): rows with a value: train ",
        "pareto; 1 private inputs of 1 features, in all rounds",
        "the mean of AUROC of death, 1 − MAE / MAE of the median of stay, AUROC of fair",
    ):
        assert any(text in found for found in texts), (text, texts)


@pytest.mark.parametrize(
    ("objectives", "edit", "expected"),
    [
        (
            [{**STAY, "column": "dayz"}],
            None,
            "nearest: 'days'; named by objective[stay].column of center.toml",
        ),
        (
            [{**FAIR, "group": "ethnicity"}],
            None,
            "none has a similar name; named by objective[fair].group of center.toml",
        ),
        (
            [STAY],
            lambda _, row: {**row, "days": 4},
            "column 'days', objective[stay].column: found one and the same value in all",
        ),
        (
            [{**DEATH, "column": "back"}],
            lambda _, row: {**row, "back": 0},
            "column 'back', objective[death].column: found one and the same value in all",
        ),
        (
            [STAY],
            lambda number, row: {**row, "days": -2 if number == 5 else 3 + number % 4},
            "column 'days', row 7: found '-2', allowed: a number of days, not negative, or empty "
            "for missing; read for objective[stay].column of center.toml",
        ),
        (
            [STAY],
            lambda _, row: {**row, "days": ""},
            "column 'days', objective[stay].column: found no value in the 140 rows of the train",
        ),
        (
            [FAIR],
            lambda _, row: {**row, "sex": "f"},
            "column 'sex', objective[fair].group: found one group ('f') in the training rows",
        ),
        (
            [FAIR],
            lambda _, row: {**row, "sex": "f" if row["died"] else "m"},
            "column 'sex', objective[fair].group: found 1 of 2 groups with label 1",
        ),
        (
            [{**DEATH, "column": "days"}],
            None,
            "column 'days', row 2: found '1.5', allowed: 0/1",
        ),
    ],
)
def test_bad_columns_are_named(
    tmp_path: Path,
    objectives: list[dict[str, Any]],
    edit: Callable[[int, Row], Row] | None,
    expected: str,
) -> None:
    assert expected in problem(center(tmp_path, objectives, edit=edit))


@pytest.mark.parametrize(
    ("objectives", "private", "own", "expected"),
    [
        (
            [DEATH],
            [{"name": "age", "kind": "continuous"}],
            {},
            "private[age].name: found a common feature of the contract",
        ),
        (
            [STAY],
            [{"name": "days", "kind": "continuous"}],
            {},
            "private[days].name: found the column of an objective or of the contract's label",
        ),
        ([DEATH], [LACTATE, LACTATE], {}, "private[lactate].name: found 2 times, allowed: once"),
        (
            [{**DEATH, "column": "diabetes"}],
            [],
            {},
            'objective[death].column: found "diabetes", a feature of the contract',
        ),
        ([DEATH, DEATH], [], {}, "objective[death].name: found 2 times, allowed: once"),
        (
            [DEATH, STAY],
            [],
            {"local_step": "plain"},
            'local_step: found "plain", allowed: pareto or weighted with 2 objectives',
        ),
        (
            [DEATH, STAY],
            [],
            {"local_step": "weighted", "gradient_normalization": "unit"},
            'gradient_normalization: found "unit", allowed: none, since local_step is "weighted"',
        ),
        (
            [DEATH],
            [],
            {"private_features": "stage2"},
            'private_features: found "stage2", allowed: always, since there is no [stage2]',
        ),
        (
            [{**DEATH, "credit_weight": 0.0}],
            [],
            {},
            "objective: found credit_weight 0 in all, allowed: one above 0 at least",
        ),
        (
            [],
            [],
            {"stationarity": 0.1},
            "stationarity: found 0.1, allowed: nothing, since there is no [[objective]]",
        ),
        (
            [{**DEATH, "group": "sex"}],
            [],
            {},
            'objective[death].group: found "sex", allowed: nothing, since kind is "bce"',
        ),
        (
            [{**FAIR, "group": None}],
            [],
            {},
            'objective[fair].group: missing, allowed: a column, since kind is "fairness"',
        ),
        ([{**DEATH, "kind": "mse"}], [], {}, 'objective[death].kind: found "mse", allowed: one of'),
    ],
)
def test_bad_keys_are_named(
    tmp_path: Path,
    objectives: list[dict[str, Any]],
    private: list[dict[str, Any]],
    own: dict[str, Any],
    expected: str,
) -> None:
    given = [{k: v for k, v in each.items() if v is not None} for each in objectives]
    assert expected in problem(center(tmp_path, given, private, **own))


def test_a_contract_without_private_layers_has_no_room_for_heads(tmp_path: Path) -> None:
    found = problem(center(tmp_path, [DEATH], head_layers=0))
    assert "contract.policy.head_layers is 0 and no layer stays private" in found


def warnings(path: Path) -> list[str]:
    return [line.finding for line in check_center(path) if line.severity == "warning"]


def test_private_columns_are_looked_at_like_common_ones(tmp_path: Path) -> None:
    def edit(number: int, row: Row) -> Row:
        lactate = "" if number % 3 else 999 if number % 12 == 0 else row["lactate"]
        return {**row, "lactate": lactate, "floor": "ICU" if number % 2 else "surgery"}

    floor = {"name": "floor", "kind": "categorical", "levels": ["icu", "surgery"]}
    found = warnings(center(tmp_path, [DEATH], [LACTATE, floor], edit))
    for text in (
        'floor: 100 rows with 1 undeclared level count as «other»: "ICU" (100)',
        "lactate: 999 in 17 rows, far from all others: a code for «missing»?",
        "lactate: no value in 66% of the rows",
    ):
        assert any(text in line for line in found), (text, found)


def test_private_columns_that_are_missing_are_all_named(tmp_path: Path) -> None:
    other = {"name": "bilirubin", "kind": "continuous"}
    path = center(tmp_path, [{**DEATH, "column": "dead"}], [other])
    lines = [line.finding for line in check_center(path) if line.severity == "problem"]
    assert [line.rpartition("; ")[2] for line in lines] == [
        "named by private[bilirubin].name of center.toml",
        "named by objective[death].column of center.toml",
    ]


def test_groups_of_a_few_and_idle_preferences_are_pointed_out(tmp_path: Path) -> None:
    path = center(tmp_path, [{**FAIR, "group": "age", "weight": 2.0}, STAY])
    found = warnings(path)
    assert any("groups of age have fewer than 5 training rows with label 1" in f for f in found)
    assert any('weight of fair: no preference counts in local_step = "pareto"' in f for f in found)
