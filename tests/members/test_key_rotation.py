"""A center changes its key pair while all run: both keys count for a while, nobody is lost."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from abps_node.config import CenterConfig
from abps_node.identity import load_own_keys
from tests.support.center_processes import CenterProcess, CenterProcesses, wait_until
from tests.support.command_line import abps
from tests.support.wards import ward_contract, ward_federation, with_static_discovery

pytestmark = pytest.mark.timeout(900)


def succeeds(*arguments: str | Path) -> str:
    done = abps(*arguments)
    assert done.code == 0, done.err
    return done.out


def newest_with(process: CenterProcess, peer: str) -> int:
    rounds = [
        view.record.round
        for view in process.reader.rounds()
        if any(partner.peer == peer for partner in view.record.partners)
    ]
    return max(rounds, default=0)


def go_on_together(first: CenterProcess, second: CenterProcess, what: str) -> None:
    """Each has the other as partner in a round that began after now."""
    for one, other in ((first, second), (second, first)):
        before = one.last_round() + 1
        name = other.center.id
        wait_until(lambda: newest_with(one, name) > before, f"{one.center.id}, {what}")  # noqa: B023


@pytest.mark.parametrize("kind", ["static", "directory"])
def test_both_keys_count_until_the_former_ends(
    tmp_path: Path, processes: CenterProcesses, kind: str
) -> None:
    contract = ward_contract({"rounds": 100_000})
    layout = ward_federation(tmp_path, ["amber", "birch"], contract)
    if kind == "static":
        layout = with_static_discovery(layout)
    amber, birch = layout.centers
    processes_of = processes.start_all([amber, birch])
    for process in processes_of:
        process.wait_for_round(1)
    first, second = processes_of
    go_on_together(first, second, "before")
    old = load_own_keys(amber).public

    told = succeeds("keys", "rotate", amber.path, "--until", "45s")
    words = shlex.split(next(line for line in told.splitlines() if "peers add" in line))
    new = words[words.index("--public-key") + 1]
    assert old not in (new, "") and load_own_keys(amber).public == old
    words[words.index("center.toml")] = str(birch.path)
    succeeds(*words[1:])
    second.wait_for_event("member-keys", "amber")
    go_on_together(first, second, "with the former key, the new one known")

    succeeds("keys", "activate", amber.path)
    first.wait_for_event("own-key")
    assert load_own_keys(amber).public == new
    go_on_together(first, second, "with the new key, the former one still good")
    endings = [event.text for event in second.reader.events(kind="member-keys")]
    wait_until(
        lambda: len(second.reader.events(kind="member-keys")) > len(endings) or _ended(second, new),
        "the former key ends",
    )
    assert _ended(second, new)
    go_on_together(first, second, "when only the new key counts")


def _ended(process: CenterProcess, new: str) -> bool:
    events = process.reader.events(kind="member-keys")
    return bool(events) and events[-1].data["keys"] == [new]


def test_a_rotation_needs_an_end_and_comes_one_at_a_time(tmp_path: Path) -> None:
    amber: CenterConfig = ward_federation(tmp_path, ["amber", "birch"]).centers[0]
    assert abps("keys", "activate", amber.path).code == 12
    assert "found 'never'" in abps("keys", "rotate", amber.path, "--until", "never").err
    succeeds("keys", "rotate", amber.path, "--until", "2d")
    again = abps("keys", "rotate", amber.path, "--until", "2d")
    assert again.code == 12 and "never overwritten" in again.err
    succeeds("keys", "activate", amber.path)
    (former,) = amber.secret_key.parent.glob("*.former")
    assert former.stat().st_mode & 0o777 == 0o600
