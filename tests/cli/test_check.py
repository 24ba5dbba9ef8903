"""`abps check`: every finding can be produced, and none hides another."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from abps_node.config import load_center_config
from abps_node.data import load_center
from abps_node.preflight import Finding, check_center, machine
from abps_node.preflight.checks import CHECKS
from abps_node.store import Store
from protocol.contract import Contract
from tests.support.command_line import abps
from tests.support.made_center import made_rows, make_center, write_rows
from tests.support.mounts import pretend
from tests.support.toml_files import KEY_B, center_tables, federation_tables, put


def found(path: Path, check: str, severity: str) -> list[Finding]:
    """Findings of one check with one severity."""
    every = check_center(path)
    return [line for line in every if (line.check, line.severity) == (check, severity)]


def problems(path: Path) -> dict[str, str]:
    """Check to finding, of all problems."""
    every = check_center(path)
    return {line.check: line.finding for line in every if line.severity == "problem"}


def with_contract(key: str, value: object) -> dict[str, Any]:
    federation = federation_tables()
    put(federation, f"contract.{key}", value)
    return federation


def test_healthy_center(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    outcome = abps("check", path)
    assert (outcome.code, outcome.err) == (0, "")
    findings = check_center(path)
    assert {finding.check for finding in findings} >= {"config", *CHECKS, "classes", "credit"}
    assert [finding for finding in findings if finding.severity == "problem"] == []
    for text in (
        "200 rows, 50 with label 1",
        "missing values in age (11.5%)",
        "rows (label 1): train 140 (35), validation 30 (",
        "140 training rows: 2 steps of up to 128 rows, 2 times a round",
        "the other centers learn: positive_rate 0.25, log_n 4.942",
        "tcp://127.0.0.1:0 is free",
    ):
        assert any(text in finding.finding for finding in findings), text


def test_table_and_json_say_the_same(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    (tmp_path / "keys/north.secret").chmod(0o644)
    table, outcome = abps("check", path), abps("check", path, "--json")
    assert (table.code, outcome.code) == (1, 1)
    answer = json.loads(outcome.out)
    assert answer["ok"] is False
    assert all(set(row) == {"check", "severity", "finding", "fix"} for row in answer["findings"])
    for row in answer["findings"]:
        assert row["severity"] in table.out and row["check"] in table.out
    (keys,) = [row for row in answer["findings"] if row["severity"] == "problem"]
    assert keys["check"] == "keys"
    assert "found mode 0644, allowed: 0600" in keys["finding"]


def test_check_changes_nothing(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    abps("check", path)
    assert sorted(tmp_path.rglob("*")) == before


def test_init_then_check_round_trip(tmp_path: Path) -> None:
    assert abps("init", tmp_path / "north").code == 0
    center = tmp_path / "north/center.toml"
    text = center.read_text(encoding="utf-8")
    center.write_text(text.replace("127.0.0.1:5555", "127.0.0.1:0"), encoding="utf-8")
    assert list(problems(center)) == ["data"], "the table is all that is missing"
    rows: list[dict[str, object]] = [
        {
            "died_30d": int(number % 5 == 0),
            "age": 40 + number % 45,
            "lactate": "" if number % 7 == 0 else number % 10 / 2,
            "diabetes": number % 2,
            "sex": "FM"[number // 2 % 2],
            "admission": ("elective", "urgent", "emergency")[number % 3],
        }
        for number in range(120)
    ]
    write_rows(tmp_path / "north/patients.csv", rows)
    assert problems(center) == {}
    assert abps("check", center).code == 0


def test_bad_config_lists_all_its_lines_and_what_was_not_looked_at(tmp_path: Path) -> None:
    center = center_tables() | {"seed": -1, "bind": "nowhere"}
    path = make_center(tmp_path, center=center)
    findings = check_center(path)
    assert [finding.severity for finding in findings] == ["problem", "problem", "warning"]
    assert {"bind: found", "seed: found"} == {
        finding.finding.partition(".toml: ")[2][: len("bind: found")] for finding in findings[:2]
    }
    assert "not looked at yet: contract, keys, members, data, port" in findings[2].finding
    assert abps("check", path).code == 1


def test_one_problem_never_hides_the_others(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    config = load_center_config(path)
    other = Contract.model_validate(with_contract("name", "other")["contract"])
    Store.open(config.state_dir, "north", other).close()
    (tmp_path / "keys/north.secret").unlink()
    (tmp_path / "patients.csv").unlink()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = path.read_text(encoding="utf-8").replace(":0", f":{port}")
        path.write_text(text, encoding="utf-8")
        bad = problems(path)
    assert list(bad) == ["keys", "data", "port", "state"]
    assert (
        f"bind: found tcp://127.0.0.1:{port}, which cannot be bound: Address already in use"
        in bad["port"]
    )
    assert "found the state of contract" in bad["state"]


def test_key_of_another_center(tmp_path: Path) -> None:
    federation = federation_tables()
    path = make_center(tmp_path, federation=federation)
    text = (tmp_path / "federation.toml").read_text(encoding="utf-8")
    own = federation["roster"][0]["public_key"]
    (tmp_path / "federation.toml").write_text(text.replace(own, "c" * 40), encoding="utf-8")
    finding = problems(path)["keys"]
    assert f"found the secret of public key {own}, allowed: that of {'c' * 40}" in finding


def test_security_none_and_simulation_are_pointed_out(tmp_path: Path) -> None:
    federation = with_contract("security", "none") | {"simulation": True}
    path = make_center(tmp_path, federation=federation)
    (tmp_path / "keys/north.secret").unlink()
    assert found(path, "security", "warning") and found(path, "simulation", "warning")
    assert problems(path) == {}, "without security no key is needed"


def test_enriched_card_without_columns_is_pointed_out(tmp_path: Path) -> None:
    path = make_center(tmp_path, federation=with_contract("policy.card", "enriched"))
    (line,) = found(path, "card", "warning")
    assert "data.card.features is empty" in line.finding


def test_missing_columns_are_a_data_problem(tmp_path: Path) -> None:
    rows = [{key: row[key] for key in ("age", "died")} for row in made_rows()]
    lines = found(make_center(tmp_path, rows=rows), "data", "problem")
    assert [line.finding.split(";")[0] for line in lines] == [
        "column 'diabetes' is missing",
        "column 'ward' is missing",
    ]


def test_undeclared_levels_are_counted(tmp_path: Path) -> None:
    rows = made_rows()
    for number, level in ((3, "ICU"), (5, "ICU"), (8, "burns")):
        rows[number]["ward"] = level
    (line,) = found(make_center(tmp_path, rows=rows), "levels", "warning")
    assert line.finding == (
        'ward: 3 rows with 2 undeclared levels count as «other»: "ICU" (2), "burns" (1)'
    )


def test_constant_and_mostly_missing_columns(tmp_path: Path) -> None:
    rows = made_rows()
    for number, row in enumerate(rows):
        row["diabetes"] = 1
        row["age"] = "" if number % 5 else 50 + number
    path = make_center(tmp_path, rows=rows)
    assert "diabetes" in found(path, "constant", "warning")[0].finding
    assert found(path, "missing", "warning")[0].finding.startswith("age: no value in 80% of")


def test_dates_that_are_missing_are_counted(tmp_path: Path) -> None:
    rows = [row | {"day": "2021-03-04" if n % 2 else ""} for n, row in enumerate(made_rows())]
    path = make_center(tmp_path, rows=rows, federation=with_contract("data.date", "day"))
    (line,) = found(path, "dates", "warning")
    assert line.finding == "100 of 200 rows have no date"


def test_one_class_falls_back_to_the_brier_score(tmp_path: Path) -> None:
    rows = [row | {"died": 0} for row in made_rows()]
    path = make_center(tmp_path, rows=rows)
    classes = found(path, "classes", "warning")
    assert [line.finding.split(":")[0] for line in classes] == ["train", "validation", "test"]
    (credit,) = found(path, "credit", "warning")
    assert "30 validation rows of one class: credit is 1 − Brier score" in credit.finding


def test_few_validation_events_make_coarse_credit(tmp_path: Path) -> None:
    path = make_center(tmp_path, rows=made_rows(28))
    (credit,) = found(path, "credit", "warning")
    assert "4 (1) validation rows: one step of AUROC is 0.33, more than the clip of 0.1" in (
        credit.finding
    )


def test_logloss_needs_no_second_class(tmp_path: Path) -> None:
    federation = with_contract("policy.utility", "logloss")
    path = make_center(tmp_path, federation=federation)
    assert found(path, "credit", "ok")[0].finding == "measured in logloss on 30 validation rows"


def test_several_rows_per_patient(tmp_path: Path) -> None:
    rows = [row | {"patient": f"p{number // 2}"} for number, row in enumerate(made_rows())]
    path = make_center(tmp_path, rows=rows, federation=with_contract("data.group", "patient"))
    assert "100 patients" in found(path, "data", "ok")[0].finding


def test_unused_columns_are_named(tmp_path: Path) -> None:
    rows = [row | {"note": "x"} for row in made_rows()]
    assert found(make_center(tmp_path, rows=rows), "data", "ok")[0].finding.endswith(
        "not used: note"
    )


def test_loopback_is_fine_in_a_simulation_only(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    (line,) = found(path, "port", "warning")
    assert "reachable from this machine only" in line.finding
    text = (tmp_path / "federation.toml").read_text(encoding="utf-8")
    (tmp_path / "federation.toml").write_text(f"simulation = true\n{text}", encoding="utf-8")
    assert found(path, "port", "warning") == []


def test_wildcard_without_an_address_can_only_connect(tmp_path: Path) -> None:
    path = make_center(tmp_path, center=center_tables() | {"bind": "tcp://*:0"})
    (line,) = found(path, "port", "warning")
    assert "no address of this center is known to the others" in line.finding


def test_host_that_is_not_of_this_machine(tmp_path: Path) -> None:
    path = make_center(tmp_path, center=center_tables() | {"bind": "tcp://192.0.2.1:0"})
    assert (
        "bind: found tcp://192.0.2.1:0, which cannot be bound: Cannot assign"
        in problems(path)["port"]
    )


def test_a_disk_that_machines_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, tmp_path, "nfs4")
    (line,) = found(make_center(tmp_path), "disk", "warning")
    assert "is on nfs4, which other machines may use too" in line.finding
    assert found(make_center(tmp_path / "again"), "disk", "ok")


@pytest.mark.parametrize(
    ("free", "severity"), [(10 * 1024**3, "ok"), (500 * 1024**2, "warning"), (1024, "problem")]
)
def test_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, severity: str
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage)
    (line,) = found(make_center(tmp_path), "disk", severity)
    assert f"GiB free in {tmp_path.resolve()}" in line.finding


def test_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    path = make_center(tmp_path, center=center_tables() | {"state_dir": "file/state"})
    assert (
        f"{tmp_path.resolve() / 'file'}: cannot be written: Not a directory"
        in (problems(path)["disk"])
    )


def test_state_of_this_center_is_told(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    assert "none yet" in found(path, "state", "ok")[0].finding
    config = load_center_config(path)
    Store.open(config.state_dir, "north", config.federation.contract).close()
    (line,) = found(path, "state", "ok")
    assert line.finding.startswith("0 rounds of this contract in")
    (config.state_dir / "state.sqlite").write_bytes(b"no database" * 100)
    assert "is damaged or not a state file" in problems(path)["state"]


def test_a_table_other_than_the_states_is_told(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    config = load_center_config(path)
    contract = config.federation.contract
    patients = load_center(contract, "north", config.data).fingerprint
    Store.open(config.state_dir, "north", contract, patients=patients).close()
    assert any("is the one that the state" in line.finding for line in found(path, "data", "ok"))
    write_rows(config.data, made_rows(199))
    (line,) = found(path, "data", "problem")
    assert "it had 200 rows, now 199" in line.finding
    assert line.fix.startswith("put the former table back, or set another state_dir")


def test_static_peers_without_an_address_are_named(tmp_path: Path) -> None:
    federation = federation_tables()
    path = make_center(tmp_path, federation=federation)
    assert "1 of 1 other center" in found(path, "peers", "ok")[0].finding
    assert found(path, "peers", "warning") == []
    text = (tmp_path / "federation.toml").read_text(encoding="utf-8")
    text = text.replace('address = "tcp://127.0.0.1:5556"', "")
    (tmp_path / "federation.toml").write_text(text, encoding="utf-8")
    (line,) = found(path, "peers", "warning")
    assert line.finding.startswith("south: roster: address: missing")


def directory_center(tmp_path: Path) -> Path:
    """A healthy center with directory discovery in the folder ``share/cards``."""
    federation = federation_tables()
    federation["discovery"] = {"kind": "directory", "path": "share/cards"}
    return make_center(tmp_path, federation=federation)


def test_shared_folder_that_is_not_mounted_is_a_problem(tmp_path: Path) -> None:
    path = directory_center(tmp_path)
    assert problems(path) == {
        "peers": f"{tmp_path.resolve() / 'share'}: cannot be written: No such file or directory"
    }
    (tmp_path / "share").mkdir()
    assert problems(path) == {}
    first, _ = found(path, "peers", "warning")
    assert "share/cards: no such folder yet" in first.finding
    assert list((tmp_path / "share").iterdir()) == []


def test_cards_in_the_shared_folder(tmp_path: Path) -> None:
    path = directory_center(tmp_path)
    cards = tmp_path / "share/cards"
    cards.mkdir(parents=True)
    (line,) = found(path, "peers", "warning")
    assert f"south: {cards.resolve() / 'south.json'}: missing" in line.finding
    (cards / "south.json").write_text("{", encoding="utf-8")
    (line,) = found(path, "peers", "warning")
    assert "south.json: the file: " in line.finding
    card = {
        "version": 1,
        "id": "south",
        "public_key": KEY_B,
        "address": "tcp://127.0.0.1:6000",
        "incarnation": 1,
    }
    (cards / "south.json").write_text(json.dumps(card), encoding="utf-8")
    assert found(path, "peers", "warning") == []
    assert "1 of 1 other center" in found(path, "peers", "ok")[1].finding


def test_many_peers_without_an_address_are_summed_up(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    text = (tmp_path / "federation.toml").read_text(encoding="utf-8")
    for number in range(9):
        text += f'[[roster]]\nid = "c{number}"\npublic_key = "{"d" * 39}{number}"\n'
    (tmp_path / "federation.toml").write_text(text, encoding="utf-8")
    lines = [line.finding for line in found(path, "peers", "warning")]
    assert len(lines) == 4
    assert lines[-1] == "and 6 more without an address"
