"""A recorded run, replayed, decides the same; where it does not, the first difference is named."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.audit import recorder as recorder_module
from abps_node.audit import stimuli
from abps_node.audit.recorder import RecordedNode, Recorder
from abps_node.audit.replay import Replayed, difference, replay
from abps_node.audit.stimuli import Recording, entry, recordings
from abps_node.audit.values import Packer, UnknownValue, Unpacker
from abps_node.config import CenterConfig, load_center_config
from abps_node.errors import ReplayDiffers
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from launch.layout import read_layout
from protocol import credit
from protocol import events as ev
from protocol.contract import Policy
from protocol.messages import Message
from tests.support.center_processes import ROOT, CenterProcesses
from tests.support.command_line import abps
from tests.support.strategies import messages
from tests.support.wards import edit_toml, ward_contract, ward_federation

ROUNDS = 5


def recording(center: CenterConfig, mebibytes: int = 64) -> CenterConfig:
    """The center with recorded stimuli."""
    edit_toml(center.path, lambda tables: tables.update(record_stimuli=mebibytes))
    return load_center_config(center.path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state of a center that was killed once, and had partners before."""
    folder = tmp_path_factory.mktemp("recorded")
    # Nobody begins without the others, and nobody is refused: how busy the machine is decides
    # nothing about who has partners.
    waiting = {"min_peers": 2, "negotiation_s": 20.0, "exchange_s": 40.0, "linger_s": 3.0}
    agreed = ward_contract({"rounds": ROUNDS, "kappa": 2}, waiting)
    centers = ward_federation(folder / "f", ["amber", "crow", "dove"], agreed).centers
    amber = recording(centers[0])
    processes = CenterProcesses()
    try:
        first, *others = processes.start_all([amber, *centers[1:]])
        first.wait_for_round(2)
        assert any(entry.record.partners for entry in first.reader.rounds())
        first.send(signal.SIGKILL)
        first.wait_for_end()
        again = processes.start(amber)
        for process in (again, *others):
            assert process.wait_for_end() == ExitCode.OK
    finally:
        processes.close()
    yield amber.state_dir


def test_the_same_decisions(recorded: Path) -> None:
    done = replay(recorded)
    assert (done.files, done.starts, done.rounds) == (2, 2, [1, ROUNDS])
    assert done.stimuli > 2 * ROUNDS and done.effects > 2 * ROUNDS
    shown = abps("replay", recorded)
    assert shown.code == ExitCode.OK, shown.err
    assert f"rounds 1 to {ROUNDS}" in shown.out and "the same decisions" in shown.out


def rewritten(recorded: Path, target: Path, change: Callable[[Any], Any]) -> Path:
    """A copy of the recording with events changed; effects stay as they were recorded."""
    (target / stimuli.FOLDER).mkdir(parents=True)
    for path in recordings(recorded):
        source = Recording(path)
        begin = source.begin
        about = (begin.center, begin.incarnation, begin.part, begin.program)
        header = entry("begin", stimuli.FORMAT, *about, begin.setting, begin.state, begin.dropped)
        events = list(source.stimuli())
        unpacker = Unpacker(lambda name, source=source: source.blobs[name])  # type: ignore[misc]
        blobs: dict[bytes, bytes] = dict(source.blobs)
        packer = Packer(lambda content, blobs=blobs: _kept(blobs, content))  # type: ignore[misc]
        entries = []
        for stimulus in events:
            event = packer.pack(change(unpacker.unpack(stimulus.event)))
            entries.append(entry("stimulus", stimulus.now, event, stimulus.effects))
        kept = [entry("blob", name, content) for name, content in blobs.items()]
        (target / stimuli.FOLDER / path.name).write_bytes(b"".join([header, *kept, *entries]))
    return target


def _kept(blobs: dict[bytes, bytes], content: bytes) -> bytes:

    name = hashlib.sha256(content).digest()
    blobs[name] = content
    return name


def test_a_copy_without_a_change_replays(recorded: Path, tmp_path: Path) -> None:
    assert replay(rewritten(recorded, tmp_path, lambda event: event)).rounds == [1, ROUNDS]


def test_one_utility_that_was_changed_is_named(recorded: Path, tmp_path: Path) -> None:
    number = next(r.record.round for r in Reader(recorded).rounds() if r.record.partners)

    def change(event: Any) -> Any:
        if not isinstance(event, ev.Merged) or event.round != number:
            return event
        empty: frozenset[str] = frozenset()
        return replace(event, utilities={**event.utilities, empty: event.utilities[empty] - 1e-6})

    with pytest.raises(ReplayDiffers) as caught:
        replay(rewritten(recorded, tmp_path, change))
    text = str(caught.value)
    assert f"Merged in round {number}" in text
    assert "CommitRound: record.partners.0.phi: found " in text and "recorded: " in text


def test_a_rule_that_was_changed_is_named(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(policy: Policy, metric: str) -> tuple[float, float]:
        return -10.0, 30.0  # no credit is what it was, not even that of φ = 0

    monkeypatch.setattr(credit, "clip_bounds", generous)
    shown = abps("replay", recorded)
    assert shown.code == ExitCode.REPLAY_DIFFERS
    assert "stimulus" in shown.err and "Merged in round" in shown.err
    assert "phi_bar" in shown.err or "clipped" in shown.err


def test_a_byte_that_was_changed_is_named(recorded: Path, tmp_path: Path) -> None:
    copy = rewritten(recorded, tmp_path, lambda event: event)
    path = recordings(copy)[0]
    whole = path.read_bytes()
    for place in (0, 4, 9, 20, *range(100, len(whole), len(whole) // 40)):
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(ReplayDiffers, match="not as it was written"):
            replay(copy)


def test_an_end_that_a_crash_cut_off_is_noted(recorded: Path, tmp_path: Path) -> None:
    copy = rewritten(recorded, tmp_path, lambda event: event)
    path = recordings(copy)[0]
    for cut in (1, 5, 11):
        path.write_bytes(path.read_bytes()[:-cut])
        assert "that a crash cut off" in replay(copy).notes[0]
    path.write_bytes(path.read_bytes() + b"\0" * 5000)  # as a power loss may leave them
    assert "that a crash cut off" in replay(copy).notes[0]


def test_parts_go_on_from_each_other_and_make_room(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stimuli recorded again with little room: several parts, each replayable alone."""
    path = recordings(recorded)[-1]
    source = Recording(path)
    # After every round the next part, however much or little the center was told in it.
    monkeypatch.setattr(recorder_module, "PARTS", 1000)
    unpacker = Unpacker(lambda name: source.blobs[name])
    contract, identity, roster, memory = unpacker.unpack(source.begin.setting)
    members = dict.fromkeys(roster, "")
    # To the last merge: how long a center lingers after it depends on the machine.
    stimuli = [(unpacker.unpack(each.event), each.now) for each in source.stimuli()]
    end = max(at for at, (event, _) in enumerate(stimuli) if isinstance(event, ev.Merged))

    def record_again(state_dir: Path, keep: int) -> list[Path]:
        recorder = Recorder(state_dir, keep, contract, identity, members, memory)
        node = RecordedNode(contract, identity, members, memory, recorder)
        for event, now in stimuli[: end + 1]:
            node.handle(event, now)
        node.close()
        return recordings(state_dir)

    state_dir = tmp_path / "state"
    files = record_again(state_dir, 4 * path.stat().st_size)
    assert len(files) > 1
    whole = replay(state_dir)
    assert whole.rounds is not None and whole.rounds[1] == ROUNDS
    first = sum(1 for _ in Recording(files[0]).stimuli())
    files[0].unlink()
    later = replay(state_dir)
    # A new part may have begun with the very last stimulus.
    assert later.stimuli == whole.stimuli - first
    assert later.rounds is None or later.rounds[1] == ROUNDS

    kept = record_again(tmp_path / "little", path.stat().st_size)
    assert [each.name for each in kept] == [each.name for each in files][-len(kept) :]
    assert 0 < len(kept) < len(files), "the oldest made room"
    assert sum(each.stat().st_size for each in kept[:-1]) <= path.stat().st_size
    replay(tmp_path / "little")


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    assert replay(tmp_path) == Replayed()
    (tmp_path / "state.sqlite").touch()
    shown = abps("replay", tmp_path)
    assert shown.code == ExitCode.STORE and "record_stimuli" in shown.err


def test_only_values_of_the_protocol_are_packed_and_made() -> None:
    packer, unpacker = Packer(lambda content: content), Unpacker(lambda name: name)
    with pytest.raises(UnknownValue, match="no value of protocol"):
        packer.pack(Path("/"))
    with pytest.raises(UnknownValue, match="no class of protocol"):
        unpacker.unpack(packer.pack(("a",)).replace(b"\xa1t", b"\xa1o"))
    bounded = unpacker.unpack(packer.pack(deque("abc", maxlen=3)))
    bounded.append("d")
    assert list(bounded) == ["b", "c", "d"], "its bound is part of what it is"
    sets = [packer.pack(frozenset(order)) for order in (["b", "a"], ["a", "b"])]
    assert sets[0] == sets[1]
    assert difference({"a": [1, 2.5]}, {"a": [1, 2.0]}) == "a.1: found 2.0, recorded: 2.5"


@given(messages, st.floats(allow_nan=False))
def test_every_message_comes_back_as_it_was(message: Message, now: float) -> None:
    blobs: dict[bytes, bytes] = {}
    packer, unpacker = Packer(lambda content: _kept(blobs, content)), Unpacker(blobs.__getitem__)
    events = [ev.Heard("there", message, 7), ev.Misbehaved("there", "\udc80", str(now))]
    packed = packer.pack(events)
    assert unpacker.unpack(packed) == events
    assert packer.pack(unpacker.unpack(packed)) == packed


@pytest.mark.slow
def test_seven_real_centers_on_rhc(tmp_path: Path, processes: CenterProcesses) -> None:
    command = [sys.executable, "examples/rhc/prepare.py", "--out", str(tmp_path / "f")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    layout = read_layout(tmp_path / "f")
    edit_toml(layout.federation, lambda tables: tables["contract"]["policy"].update(rounds=6))
    for center in layout.centers:
        edit_toml(center.path, lambda tables: tables.update(compare_alone=False))
        recording(center)
    started = processes.start_all([load_center_config(c.path) for c in layout.centers])
    assert {process.wait_for_end() for process in started} == {ExitCode.OK}
    for center in layout.centers:
        done = replay(center.state_dir)
        assert done.rounds == [1, Reader(center.state_dir).status().last_round]
        assert done.notes == ()
        shown = abps("outbound", center.state_dir, "--verify")
        assert shown.code == ExitCode.OK, shown.err
