"""Members are revoked and admitted while daemons run; what follows is heeded, kept and replayed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from abps_node.config import CenterConfig
from launch.layout import read_layout
from tests.support.center_processes import CenterProcess, CenterProcesses, wait_until
from tests.support.command_line import abps
from tests.support.wards import edit_toml, ward_contract, ward_federation, with_own_federation

pytestmark = pytest.mark.timeout(900)

OPEN_ENDED = ward_contract({"rounds": 100_000, "kappa": 2})


def status(center: CenterConfig, peer: str) -> str:
    lines = json.loads(abps("peers", center.path, "--json").out)["peers"]
    return next(line["status"] for line in lines if line["peer"] == peer)


def rounds_with(process: CenterProcess, peer: str) -> list[int]:
    views = process.reader.rounds()
    return sorted(
        view.record.round
        for view in views
        if any(partner.peer == peer for partner in view.record.partners)
    )


def succeeds(*arguments: str | Path) -> str:
    done = abps(*arguments)
    assert done.code == 0, done.err
    return done.out


def test_a_revoked_member_is_gone_at_once_and_for_good_until_it_is_admitted_again(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    layout = ward_federation(tmp_path, ["amber", "birch", "cedar"], OPEN_ENDED)
    edit_toml(layout.centers[0].path, lambda tables: tables.update(record_stimuli=64))
    amber, birch, cedar = processes.start_all(layout.centers)
    wait_until(lambda: amber.last_round() and rounds_with(amber, "cedar"), "amber and cedar met")

    succeeds("peers", "revoke", amber.center.path, "--id", "cedar")
    amber.wait_for_event("member-revoked", "cedar")
    (event,) = amber.reader.events(kind="member-revoked")
    # A merge that was under way may be finished; the event says so.
    last = event.round if "under way" in event.text else event.round - 1
    cut = [e for e in amber.reader.events(kind="misbehavior") if e.data["reason"] == "revoked"]
    assert {e.peer for e in cut} <= {"cedar"}
    cedar.wait_for_event("connection", "amber")
    amber.wait_for_round(event.round + 5)
    assert [r for r in rounds_with(amber, "cedar") if r > max(last, event.round)] == []
    assert max(rounds_with(amber, "birch")) > event.round
    assert status(amber.center, "cedar") == "revoked"
    wait_until(lambda: max(rounds_with(birch, "cedar")) > event.round, "birch keeps both")

    amber.send(signal.SIGKILL)
    amber.wait_for_end()
    again = processes.start(amber.center)
    before = amber.last_round()
    again.wait_for_round(before + 3)
    assert [r for r in rounds_with(again, "cedar") if r > event.round] == []
    assert status(again.center, "cedar") == "revoked"

    key = next(c.member.public_key for c in layout.centers if c.id == "cedar")
    succeeds("peers", "add", again.center.path, "--id", "cedar", "--public-key", key)
    again.wait_for_event("member-added", "cedar")
    wait_until(lambda: max(rounds_with(again, "cedar")) > before + 3, "cedar is a partner again")
    assert status(again.center, "cedar") == "met"
    again.send(signal.SIGTERM)
    again.wait_for_end()
    assert "the same decisions" in succeeds("replay", again.center.state_dir)
    succeeds("outbound", again.center.state_dir, "--verify")


def test_a_new_center_joins_a_running_federation(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    layout = ward_federation(tmp_path, ["amber", "birch", "cedar"], OPEN_ENDED)

    def without_cedar(tables: dict) -> None:  # type: ignore[type-arg]
        tables["roster"] = [m for m in tables["roster"] if m["id"] != "cedar"]

    edit_toml(layout.centers[2].path, lambda tables: tables.update(join_from="partner"))
    amber, birch, cedar = read_layout(layout.directory).centers
    old = processes.start_all([with_own_federation(c, without_cedar) for c in (amber, birch)])
    for process in old:
        process.wait_for_round(30)
    key = cedar.member.public_key
    for process in old:
        succeeds("peers", "add", process.center.path, "--id", "cedar", "--public-key", key)
        process.wait_for_event("member-added", "cedar")
    new = processes.start(cedar)
    new.wait_for_round(1)
    new.wait_for_event("peer-met", "amber")
    wait_until(lambda: rounds_with(old[0], "cedar"), "the new center is a partner of the old")
    wait_until(lambda: new.last_round() and rounds_with(new, "amber"), "and the old of the new")
    records = [view.record for view in new.reader.rounds()]
    assert records[0].round == 1
    # From the prior, here as there: at most the credit of its own first round.
    assert all(belief.n <= 1 for belief in records[0].beliefs.values())
    merges = [record for record in records if record.partners][:2]
    told = [sum(p.weight or 0.0 for p in record.partners) for record in merges]
    # The first merge takes nothing of the newcomer's own trunk, every later one does.
    assert told[0] == pytest.approx(1.0) and all(share < 0.99 for share in told[1:])
    (event,) = new.reader.events(kind="trunk-adopted")
    assert event.round == merges[0].round
    assert min(rounds_with(old[0], "cedar")) > 30


def test_what_cannot_be_changed_is_refused_in_one_line(tmp_path: Path) -> None:
    layout = ward_federation(tmp_path, ["amber", "birch"], OPEN_ENDED)
    amber, birch = layout.centers
    key, own = birch.member.public_key, amber.member.public_key
    attempts = {
        ("revoke", "--id", "nobody"): "allowed: one of birch",
        ("revoke", "--id", "amber"): "this center itself",
        ("revoke",): "exactly one of the two",
        ("add", "--id", "cedar", "--public-key", key): "found a key of birch",
        ("add", "--id", "cedar", "--public-key", "short"): "--public-key: ",
        ("add", "--id", "Not An Id", "--public-key", own[::-1]): "--",
        ("add", "--id", "birch", "--public-key", "0" * 40): "--until: missing",
        ("add", "--id", "birch", "--public-key", "0" * 40, "--until", "soon"): "found 'soon'",
        ("add", "--id", "birch", "--public-key", "0" * 40, "--until", "2001-01-01"): "to come",
    }
    for (command, *options), expected in attempts.items():
        done = abps("peers", command, amber.path, *options)
        assert done.code == 10 and expected in done.err, (options, done)
        assert len(done.err.splitlines()) == 1
    assert not amber.members.exists()
    amber.members.write_text('{"format": 1, "changes": [{"at": 1.0}]}')
    done = abps("peers", "revoke", amber.path, "--id", "birch")
    assert done.code == 10 and "members.json: changes.0.action" in done.err
