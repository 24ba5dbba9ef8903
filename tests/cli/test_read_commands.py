"""The reading commands, for people and as JSON, on made states."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from abps_node.cli import human, read
from abps_node.errors import ConfigError, NodeError, StoreError
from abps_node.store import Store
from protocol.effects import Note, PeerChanged, PhaseChanged, SessionRow
from protocol.record import RestCause
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract(rounds=40, goal="homogeneity", keep_fraction=0.25)
APP = typer.Typer()
read.register(APP)


def run(*arguments: object) -> str:
    """Output of a command that must succeed."""
    result = CliRunner().invoke(APP, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout


def as_json(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--json"))


def words(text: str) -> str:
    """Text without the line breaks and padding of a table."""
    return re.sub(r"\s+", " ", text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A running center, ``here``, that has just begun."""
    with Store.open(tmp_path / "state", "here", CONTRACT) as opened:
        opened.begin_incarnation()
        yield opened


@pytest.fixture
def state_dir(store: Store) -> Path:
    """The state of a running center in its fourth round, after two with partners and a rest."""
    chronicle = Chronicle(contract=CONTRACT, peers=("near", "far"))
    store.set_runtime("tcp://127.0.0.1:5555", os.getpid())
    store.peer(PeerChanged("near", "met", 2, (0.25, 6.0), ""))
    store.peer(PeerChanged("far", "suspect", 1, None, "silent"))
    store.peer(PeerChanged("third", "refused", 1, None, "other contract \x1b[31m\x9b"))
    store.seen("near")
    store.commit_round(chronicle.with_partners({"near": 0.05, "far": -0.02}, validation=0.71))
    store.commit_round(chronicle.resting(RestCause.BELOW_THRESHOLD, "Best UCB 0.43 (near)."))
    store.commit_round(chronicle.with_partners({"near": 0.014}, validation=0.7))
    store.add_traffic({("near", "out", "weights"): (2, 40_000, 41_000)})
    store.add_traffic({("near", "in", "weights"): (2, 40_000, 42_000)})
    store.note(Note("refused", "warning", "near", "said \x1b[31mred", {}), 3)
    store.phase(PhaseChanged("gathering", 4))
    row = SessionRow(chronicle.session("far"), "far", 4, "accepted", False, False)
    store.save_sessions([row])
    return store.path.parent


# Where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "rounds", "peers", "isolation"])
def test_the_state_is_found_by_directory_file_and_folder(state_dir: Path, command: str) -> None:
    folder = state_dir.parent
    (folder / "center.toml").write_text('id = "here"\n')
    expected = as_json(command, state_dir)
    assert as_json(command, folder / "center.toml") == expected
    assert as_json(command, folder) == expected


def test_a_relative_state_dir_starts_at_the_file(state_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "center.toml").write_text('state_dir = "../state"\nunknown = 1\n')
    assert as_json("status", folder)["center"] == "here"


def refused(*arguments: object) -> NodeError:
    result = CliRunner().invoke(APP, [str(argument) for argument in arguments])
    assert isinstance(result.exception, NodeError)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""
    return result.exception


def test_a_path_that_leads_nowhere(tmp_path: Path) -> None:
    gone = refused("status", tmp_path / "gone")
    assert isinstance(gone, ConfigError) and "found nothing" in str(gone)
    assert "no center" in str(refused("status", tmp_path))
    (tmp_path / "center.toml").write_text("state_dir = 3\n")
    assert "state_dir: found 3" in str(refused("rounds", tmp_path))
    (tmp_path / "center.toml").write_text("")
    unborn = refused("rounds", "--follow", tmp_path)
    assert isinstance(unborn, StoreError) and str(tmp_path / "state") in str(unborn)


def test_a_federation_is_not_a_center(tmp_path: Path) -> None:
    center = tmp_path / "centers" / "near"
    center.mkdir(parents=True)
    (center / "center.toml").touch()
    assert str(center) in str(refused("peers", tmp_path))


# status ---------------------------------------------------------------------------------------


def test_status_of_a_running_center(state_dir: Path) -> None:
    text = words(run("status", state_dir))
    assert "here, federation made, contract " + CONTRACT.digest()[:12] in text
    assert "running: phase gathering of round 4 of 40" in text
    assert f"{os.getpid()} on " in text and "tcp://127.0.0.1:5555" in text
    assert "3 of 40, 0 s ago, with near" in text
    assert "partners now far" in text
    assert "auroc 0.7000 (12 events in 60 rows); best 0.7100 in round 1, 2 rounds without" in text
    assert "1 of 3 rounds: 1 below-threshold (intentional)" in text
    assert "1 met, 1 suspect, 1 refused" in text
    assert "40.0 kB in 2 messages, 42.0 kB on the wire" in text
    assert "warning, near: said \\x1b[31mred" in text and "\x1b" not in text

    found = as_json("status", state_dir)
    assert (found["condition"], found["last_round"], found["phase"]) == ("running", 3, "gathering")
    assert found["isolated"] == {"below-threshold": 1}
    assert found["partners_now"] == ["far"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["phase_since"])


def test_partners_now_are_those_of_a_running_center(state_dir: Path, store: Store) -> None:
    with store._transaction() as db:
        db.execute("UPDATE meta SET pid_started = 'another process'")
    assert "partners now none" in words(run("status", state_dir))
    assert as_json("status", state_dir)["partners_now"] == []


@pytest.mark.parametrize(
    ("metric", "name"), [("brier", "1 − brier"), ("logloss", "−log-loss"), ("auroc", "auroc")]
)
def test_a_metric_is_called_what_its_value_is(store: Store, metric: str, name: str) -> None:
    commit = Chronicle(contract=CONTRACT).with_partners({"near": 0.05}, validation=0.9)
    found = commit.record.validation.model_copy(update={"metric": metric})
    record = commit.record.model_copy(update={"validation": found})
    store.commit_round(type(commit)(**{**vars(commit), "record": record}))
    assert f"validation {name} 0.9000" in words(run("status", store.path.parent))


def test_the_last_event_names_its_peer_once(store: Store) -> None:
    for peer, text, shown in (
        ("near", "near: connection-lost, it ended", "info, near: connection-lost, it ended"),
        ("near", "near-by is suspect", "info, near: near-by is suspect"),
        ("far", "far is suspect", "info, far is suspect"),
    ):
        store.note(Note("connection", "info", peer, text, {}), 1)
        assert shown in words(run("status", store.path.parent))


@pytest.mark.parametrize("status", ["finished", "away"])
def test_a_connection_that_ends_after_a_farewell_is_no_news(store: Store, status: str) -> None:
    store.note(Note("peer-left", "info", "near", "near said goodbye", {}), 1)
    store.note(Note("connection", "info", "near", "near: connection-lost, it ended", {}), 1)
    store.peer(PeerChanged("near", "met", 1, None, ""))
    assert "connection-lost" in run("status", store.path.parent)
    store.peer(PeerChanged("near", status, 1, None, ""))
    text = run("status", store.path.parent)
    assert "near said goodbye" in text and "connection-lost" not in text


def test_status_before_the_first_round(store: Store) -> None:
    text = words(run("status", store.path.parent))
    assert "running: phase starting" in text
    assert "none committed yet" in text and "none known yet" in text
    assert as_json("status", store.path.parent)["validation"] is None


def test_status_of_a_dead_center_says_where_it_died(state_dir: Path, store: Store) -> None:
    with store._transaction() as db:
        db.execute("UPDATE meta SET pid_started = 'another process'")
    assert "died in phase gathering of round 4 of 40" in words(run("status", state_dir))
    assert as_json("status", state_dir)["condition"] == "dead"


def test_status_after_a_clean_end(tmp_path: Path) -> None:
    chronicle = Chronicle(contract=CONTRACT)
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(chronicle.resting())
    assert re.search(r"stopped on .* after round 1 of 40", words(run("status", tmp_path)))
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(chronicle.resting(finished=True))
    assert "finished after round 2 of 40" in run("status", tmp_path)
    with store.open(tmp_path / "new", "here", CONTRACT):
        assert "never started" in run("status", tmp_path / "new")


# rounds ---------------------------------------------------------------------------------------


def test_rounds_are_one_line_each(state_dir: Path) -> None:
    header, first, second, third = run("rounds", state_dir).splitlines()
    assert words(header).strip() == (
        "round U(∅)→U(P) valid. prop. time bytes partners (φ) or cause of rest"
    )
    assert words(first).strip() == (
        "1 0.6800→0.7100 0.7100 2/2 1.2 s 80.4 kB near +0.050, far -0.020"
    )
    assert words(second).strip() == (
        "2 0.7000 0.7000 0/0 1.2 s 400 B rest: below-threshold (intentional)"
    )
    assert third.split()[-2:] == ["near", "+0.014"]
    assert run("rounds", state_dir, "--last", 1).splitlines() == [header, third]

    found = as_json("rounds", state_dir, "--last", 2)
    assert found["center"] == "here"
    assert [entry["round"] for entry in found["rounds"]] == [2, 3]
    assert found["rounds"][1]["partners"][0]["phi"] == 0.014


def test_many_partners_stay_within_the_width(store: Store) -> None:
    names = [f"a-center-with-a-long-name-{number}" for number in range(5)]
    chronicle = Chronicle(contract=CONTRACT, peers=names)
    store.commit_round(chronicle.with_partners(dict.fromkeys(names, 0.02)))
    lines = run("rounds", store.path.parent).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(f"{name} +0.020" in "\n".join(lines) for name in names)


@pytest.mark.parametrize("command", ["rounds", "peers"])
def test_eighty_columns_are_enough(
    store: Store, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(human, "WIDTH_WITHOUT_TERMINAL", 80)
    names = ["mosf-malignancy", "colon-cancer"]
    for name in names:
        store.peer(PeerChanged(name, "suspect", 2, (0.25, 6.0), "silent"))
        store.seen(name)
    chronicle = Chronicle(contract=CONTRACT, peers=names)
    store.commit_round(chronicle.with_partners(dict.fromkeys(names, 0.02)))
    store.commit_round(chronicle.resting(RestCause.BELOW_THRESHOLD, "Best UCB 0.43."))
    text = run(command, store.path.parent)
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in names)


def test_no_rounds_are_a_sentence(store: Store) -> None:
    assert run("rounds", store.path.parent) == "No round is committed yet.\n"
    assert as_json("rounds", store.path.parent) == {"center": "here", "rounds": []}


def test_a_number_that_json_cannot_say_is_null(store: Store) -> None:
    commit = Chronicle(contract=CONTRACT).resting()
    record = commit.record.model_copy(update={"training_loss": float("nan")})
    store.commit_round(type(commit)(**{**vars(commit), "record": record}))
    (entry,) = as_json("rounds", store.path.parent)["rounds"]
    assert entry["training_loss"] is None


# peers ----------------------------------------------------------------------------------------


def test_peers_with_belief_bound_score_outcome_and_card(state_dir: Path) -> None:
    text = run("peers", state_dir)
    title = "here after round 3: 3 peers; UCB of round 4 with γ 1.41, τ_acc 0.5; goal homogeneity"
    assert words(text).startswith(title)
    header, far, near, third = (
        next(line for line in text.splitlines() if line.startswith(name))
        for name in ("peer", "far", "near", "third")
    )
    assert {"mean", "α", "β", "UCB", "goal", "seen", "card"} <= set(header.split())
    # φ̄ of −0.02 is 0.4, of 0.05 and 0.014 it is 0.75 and 0.57 (clip at ±0.1).
    assert far.split()[:7] == ["far", "suspect", "1", "0.467", "1.40", "1.60", "2.132"]
    assert near.split()[:8] == ["near", "met", "#2", "2", "0.580", "2.32", "1.68", "1.940"]
    assert "complete (3)" in near and near.rstrip().endswith("25 % of 403")
    assert third.split()[:3] == ["third", "refused", "0"]
    assert text.splitlines()[-1] == "third is refused: other contract \\x1b[31m\\x9b"
    assert "\x1b" not in text

    found = as_json("peers", state_dir)
    assert (found["round"], found["card_names"]) == (4, ["positive_rate", "log_n"])
    by_id = {peer["peer"]: peer for peer in found["peers"]}
    assert by_id["near"]["n"] == 2 and by_id["near"]["goal_score"] == 0.9
    assert by_id["near"]["card"] == [0.25, 6.0]
    assert by_id["third"]["last_outcome"] is None
    assert by_id["third"]["detail"] == "other contract \x1b[31m\x9b"
    assert not {"\x1b", "\x9b"} & set(run("peers", str(state_dir), "--json"))


def test_two_hundred_and_thirty_peers_fit_on_a_page(store: Store) -> None:
    names = [f"hospital-{number:03d}" for number in range(230)]
    for name in names:
        store.peer(PeerChanged(name, "met", 1, (0.1, 5.0), ""))
    store.peer(PeerChanged("hospital-007", "suspect", 1, None, "silent"))
    chronicle = Chronicle(contract=CONTRACT, peers=names)
    store.commit_round(chronicle.with_partners({"hospital-200": 0.09, "hospital-100": 0.01}))
    lines = run("peers", store.path.parent).splitlines()
    assert max(map(len, lines)) <= 100
    listed = [line.split()[0] for line in lines[2:5]]
    assert listed == ["hospital-200", "hospital-100", "hospital-007"]
    assert "… and 227 peers at the prior, mean 0.500" in words(" ".join(lines[5:]))
    assert len(lines) < 10

    everyone = run("peers", store.path.parent, "--all")
    assert all(name in everyone for name in names)
    assert max(map(len, everyone.splitlines())) <= 100


def test_no_peers_are_a_sentence(store: Store) -> None:
    assert run("peers", store.path.parent) == "here knows no peer yet.\n"
    assert as_json("peers", store.path.parent)["peers"] == []


# isolation ------------------------------------------------------------------------------------


def test_isolation_totals_then_every_round_with_its_reason(store: Store) -> None:
    chronicle = Chronicle(contract=CONTRACT)
    store.commit_round(chronicle.resting(RestCause.FILTER_EMPTY, "None of 2 passes the filter."))
    store.commit_round(chronicle.with_partners({"near": 0.01}))
    store.commit_round(chronicle.resting(RestCause.ALL_BUSY, "Two attempts: 2 busy."))
    store.commit_round(chronicle.resting(RestCause.FILTER_EMPTY, "Again none of 2."))
    path = store.path.parent

    text = words(run("isolation", path))
    assert "here was isolated in 3 of 4 rounds, in 2 of them by its own filter or belief" in text
    assert "2 filter-empty intentional 1 all-busy" in text
    for sentence in ("None of 2 passes the filter.", "Two attempts: 2 busy.", "Again none of 2."):
        assert sentence in text
    assert "known 2, after filter 2" in text

    newest = words(run("isolation", path, "--last", 1))
    assert "Again none of 2." in newest and "Two attempts" not in newest
    assert "isolated in 3 of 4" in newest

    found = as_json("isolation", path)
    assert (found["rounds"], found["isolated"], found["intentional"]) == (4, 3, 2)
    assert found["totals"]["all-busy"] == {"rounds": 1, "intentional": False}
    assert [(entry["round"], entry["cause"]) for entry in found["entries"]] == [
        (1, "filter-empty"),
        (3, "all-busy"),
        (4, "filter-empty"),
    ]


def test_no_isolation_is_a_sentence(store: Store) -> None:
    path = store.path.parent
    assert run("isolation", path) == "here has committed no round yet.\n"
    store.commit_round(Chronicle(contract=CONTRACT).with_partners({"near": 0.01}))
    assert run("isolation", path) == "here had a partner in each of 1 round.\n"
    assert as_json("isolation", path)["entries"] == []
