"""The record of what left a center: whole as it is written, and no change to it goes unseen."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abps_node.audit.chain import GENESIS, files_of, newest_start, parse, seal, split, tail_of
from abps_node.audit.opening import open_record
from abps_node.audit.outbound import OutboundRecord
from abps_node.audit.verify import Verdict, knows, verify
from abps_node.errors import DiskFull, StoreError
from abps_node.exits import ExitCode
from abps_node.store import Store
from protocol.messages import CardMessage, Hello, Ping, Propose, SessionId, Weights
from tests.support.command_line import abps
from tests.support.records import make_contract

CONTRACT = make_contract()
PROPOSAL = SessionId("here", 1, "there", 1, 1)
SEVERAL = 5


def fill(record: OutboundRecord, messages: int = SEVERAL) -> None:
    for number in range(1, messages + 1):
        record.message("there", Propose(1, PROPOSAL, number), 100 + number)


def write(state_dir: Path, starts: int = 3, part_bytes: int = 1300) -> None:
    """Some starts with several lines each, in several parts, known to a store."""
    for incarnation in range(1, starts + 1):
        with Store.open(state_dir, "here", CONTRACT) as store:
            assert store.begin_incarnation() == incarnation
            digest = CONTRACT.digest()
            with OutboundRecord(
                state_dir, "here", incarnation, digest, part_bytes=part_bytes
            ) as record:
                store.anchored_by(record.sync)
                fill(record)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state_dir = tmp_path_factory.mktemp("whole")
    write(state_dir)
    return state_dir


def test_a_record_as_it_was_written_is_whole(whole: Path) -> None:
    verdict = verify(whole)
    assert verdict.broken is None and verdict.notes == []
    assert verdict.starts == 3 and verdict.files > 3
    assert verdict.lines == 3 * (SEVERAL + 1) + verdict.files
    assert verdict.head == verdict.anchor
    assert verdict.head is not None and knows(whole, verdict.head.hash)
    assert not knows(whole, "0" * 64)


def test_every_message_stands_there_with_what_it_says(tmp_path: Path) -> None:
    payload = bytes(range(200))
    with OutboundRecord(tmp_path, "here", 1, "c" * 64) as record:
        card = CardMessage(1, (0.25, 120.0))
        record.message("a", Hello(1, "here", 1, "c" * 64, "d" * 64, card, False, True), 321)
        record.message("b", Weights(1, PROPOSAL, 3, 1, 90, "float32", "e" * 64, payload), 999)
        line = record.message("c", Ping(1), 20)
        record.undelivered(line, "no-address")
        record.published("mqtt", "mqtts://broker:8883 abps/card/here", "publish", b'{"a": 1}')
    _, hello, weights, ping, undelivered, published, end = lines(tmp_path)
    assert end["what"] == "end"
    assert hello["to"] == "a" and hello["bytes"] == 321
    assert hello["message"]["card"] == {"sequence": 1, "values": [0.25, 120.0]}
    assert weights["trunk"] == hashlib.sha256(payload).hexdigest()
    assert weights["message"]["session"] == str(PROPOSAL) and "payload" not in weights["message"]
    assert (ping["what"], undelivered["line"], undelivered["reason"]) == ("ping", 4, "no-address")
    assert published["told"] == '{"a": 1}'


def lines(state_dir: Path) -> list[dict[str, object]]:
    found = [parse(line) for path in files_of(state_dir) for line in path.read_bytes().splitlines()]
    return [line for line in found if line is not None]


def test_no_part_is_much_longer_than_asked_for(whole: Path) -> None:
    assert all(path.stat().st_size < 1300 + 600 for path in files_of(whole))


# Attacks ------------------------------------------------------------------------------------------

Change = Callable[[list[bytes], int], list[bytes]]


def edit(text: list[bytes], at: int) -> list[bytes]:
    """One digit of the number of bytes, or the first that is found."""
    changed = re.sub(rb"\d", lambda m: b"%d" % ((int(m[0]) + 1) % 10), text[at], count=1)
    return [*text[:at], changed, *text[at + 1 :]]


def edit_and_seal(text: list[bytes], at: int) -> list[bytes]:
    """The change is sealed as the program would, but later lines stay as they are."""
    parts = split(text[at].rstrip(b"\n"))
    assert parts is not None
    before = split(text[at - 1].rstrip(b"\n")) if at else None
    content = parts[0].replace(b'"at":"2', b'"at":"3')
    sealed, _ = seal(content, before[1] if before else GENESIS)
    return [*text[:at], sealed, *text[at + 1 :]]


def delete(text: list[bytes], at: int) -> list[bytes]:
    return [*text[:at], *text[at + 1 :]]


def swap(text: list[bytes], at: int) -> list[bytes]:
    other = at + 1 if at + 1 < len(text) else at - 1
    changed = list(text)
    changed[at], changed[other] = text[other], text[at]
    return changed


def truncate(text: list[bytes], at: int) -> list[bytes]:
    return text[:at]


def cut_within(text: list[bytes], at: int) -> list[bytes]:
    return [*text[:at], text[at][: len(text[at]) // 2]]


def duplicate(text: list[bytes], at: int) -> list[bytes]:
    return [*text[: at + 1], text[at], *text[at + 1 :]]


def garble(text: list[bytes], at: int) -> list[bytes]:
    return [*text[:at], b"\0" * 40 + b"\n", *text[at + 1 :]]


ATTACKS: list[Change] = [
    edit,
    edit_and_seal,
    delete,
    swap,
    truncate,
    cut_within,
    duplicate,
    garble,
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(attack=st.sampled_from(ATTACKS), file=st.integers(0, 99), at=st.integers(0, 99))
def test_every_change_of_a_line_is_found(
    whole: Path,
    tmp_path_factory: pytest.TempPathFactory,
    attack: Change,
    file: int,
    at: int,
) -> None:
    copy = tmp_path_factory.mktemp("attacked") / "state"
    shutil.copytree(whole, copy)
    paths = files_of(copy)
    path = paths[file % len(paths)]
    text = path.read_bytes().splitlines(keepends=True)
    at %= len(text)
    path.write_bytes(b"".join(attack(text, at)))
    broken = verify(copy).broken
    shutil.rmtree(copy.parent)
    assert broken is not None, f"{attack.__name__} of line {at + 1} of {path.name}"
    assert broken.found != broken.expected


@pytest.mark.parametrize("number", range(5))
def test_a_file_that_is_gone_is_named(whole: Path, tmp_path: Path, number: int) -> None:
    copy = tmp_path / "state"
    shutil.copytree(whole, copy)
    gone = files_of(copy)[number]
    gone.unlink()
    broken = verify(copy).broken
    assert (broken is not None and gone.name in str(broken)) or number == 0
    assert broken is not None


def test_the_first_line_that_was_changed_is_named(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "state"
    shutil.copytree(whole, copy)
    path = files_of(copy)[0]
    text = path.read_bytes()
    assert text.count(b'"bytes":1') > 1
    path.write_bytes(text.replace(b'"bytes":1', b'"bytes":2', 1))
    broken = verify(copy).broken
    assert broken is not None
    assert broken.place == f"{path}: line 2"
    assert "hash " in broken.found and "hash " in broken.expected


def test_a_record_that_was_written_anew_does_not_hold_the_state_s_line(
    whole: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "state"
    shutil.copytree(whole, copy)
    before = verify(copy).head
    assert before is not None
    shutil.rmtree(copy / "outbound")
    for incarnation in (1, 2, 3):
        with OutboundRecord(
            copy, "here", incarnation, CONTRACT.digest(), part_bytes=1300
        ) as forged:
            fill(forged)
    broken = verify(copy).broken
    assert broken is not None and "written anew" in str(broken)
    (copy / "state.sqlite").unlink()
    assert verify(copy).broken is None, "without the state only a noted hash can tell"
    assert not knows(copy, before.hash)


# Crashes ------------------------------------------------------------------------------------------


def test_a_line_that_a_crash_cut_off_is_marked_by_the_next_start(tmp_path: Path) -> None:
    write(tmp_path, starts=1, part_bytes=10_000)
    (path,) = files_of(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"n":7,"at":"2026-')
    assert any("cut off" in note for note in verify(tmp_path).notes)
    with Store.open(tmp_path, "here", CONTRACT) as store:
        number = store.begin_incarnation()
        with open_record(tmp_path, store, "here", number, CONTRACT.digest()) as record:
            fill(record)
    verdict = verify(tmp_path)
    assert verdict.broken is None
    assert any("18 bytes of a line that a crash cut off" in note for note in verdict.notes)
    path.write_bytes(path.read_bytes()[:-1])
    broken = verify(tmp_path).broken
    assert broken is not None and broken.place.endswith(f"{path.name}: line 8")


def test_a_start_without_an_end_is_noted(tmp_path: Path) -> None:
    killed = OutboundRecord(tmp_path, "here", 1, CONTRACT.digest())
    fill(killed)
    killed.close(clean=False)
    assert verify(tmp_path).broken is None
    with OutboundRecord(tmp_path, "here", 2, CONTRACT.digest()):
        pass
    notes = verify(tmp_path).notes
    assert notes[0].startswith("000001-0001.jsonl: no clean end")
    assert not any(note.startswith("000002") for note in notes)


def test_zeros_that_a_power_loss_left_are_no_change(tmp_path: Path) -> None:
    write(tmp_path, starts=1, part_bytes=10_000)
    (path,) = files_of(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"n":7,"at"' + b"\0" * 4000)
    assert verify(tmp_path).broken is None
    assert tail_of(path).head == verify(tmp_path).head
    with OutboundRecord(tmp_path, "here", 2, CONTRACT.digest()):
        pass
    assert verify(tmp_path).broken is None


def test_lines_of_an_older_copy_that_still_ran_are_noted(tmp_path: Path) -> None:
    with OutboundRecord(tmp_path, "here", 1, CONTRACT.digest()) as older:
        fill(older)
        with OutboundRecord(tmp_path, "here", 2, CONTRACT.digest()) as newer:
            fill(older, 2)
            fill(newer, 2)
    verdict = verify(tmp_path)
    assert verdict.broken is None
    assert any("lines 7 to 9 were written by an older copy" in note for note in verdict.notes)


def test_a_clock_that_was_set_back_is_noted(tmp_path: Path) -> None:
    times = iter([1e9, 1e9, 1e9 - 3600.0, 1e9 + 1.0, 1e9 + 2.0])
    with OutboundRecord(tmp_path, "here", 1, "c" * 64, clock=lambda: next(times)) as record:
        fill(record, 3)
    verdict = verify(tmp_path)
    assert verdict.broken is None
    assert any("line 3: the clock was set back by 3600 s" in note for note in verdict.notes)


def test_a_start_that_finds_lines_missing_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, starts=1, part_bytes=10_000)
    (path,) = files_of(tmp_path)
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(text[:-2]))
    with Store.open(tmp_path, "here", CONTRACT) as store:
        number = store.begin_incarnation()
        with open_record(tmp_path, store, "here", number, CONTRACT.digest()):
            pass
    assert "found 5 lines of what left this center, allowed: 7" in caplog.text


def test_a_state_that_was_restored_alone_takes_no_number_twice(tmp_path: Path) -> None:
    write(tmp_path, starts=1)
    old = (tmp_path / "state.sqlite").read_bytes()
    with OutboundRecord(tmp_path, "here", 2, CONTRACT.digest()) as record:
        fill(record)
    for leftover in tmp_path.glob("state.sqlite*"):
        leftover.unlink()
    (tmp_path / "state.sqlite").write_bytes(old)
    with Store.open(tmp_path, "here", CONTRACT) as store:
        assert store.begin_incarnation(after=newest_start(tmp_path)) == 3


def test_a_disk_without_space_stops_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OutboundRecord(tmp_path, "here", 1, "c" * 64) as record:
        whole_write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: whole_write(fd, data[:10]))
        with pytest.raises(DiskFull, match="nothing is sent"):
            fill(record)
        monkeypatch.undo()


def test_an_existing_file_is_never_written_to(tmp_path: Path) -> None:
    write(tmp_path, starts=1)
    with pytest.raises(StoreError, match="cannot be written down"):
        OutboundRecord(tmp_path, "here", 1, CONTRACT.digest())


# By hand ------------------------------------------------------------------------------------------


def script() -> str:
    """The one on the page for auditors."""
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def by_hand(state_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", script(), str(state_dir / "outbound")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_of_the_page_finds_the_same(whole: Path, tmp_path: Path) -> None:
    done = by_hand(whole)
    head = verify(whole).head
    assert done.returncode == 0, done.stderr
    assert head is not None and head.hash in done.stdout
    copy = tmp_path / "state"
    shutil.copytree(whole, copy)
    path = files_of(copy)[2]
    path.write_bytes(path.read_bytes().replace(b'"there"', b'"nobody"', 1))
    done = by_hand(copy)
    broken = verify(copy).broken
    assert done.returncode == 1 and broken is not None
    name, _, number = broken.place.rpartition(": line ")
    assert f"{Path(name).name}: line {number}" in done.stderr


def test_every_line_is_json_for_everybody(whole: Path) -> None:
    for path in files_of(whole):
        for line in path.read_text(encoding="ascii").splitlines():
            assert {"n", "at", "what", "hash"} <= json.loads(line).keys()


def test_a_verdict_of_nothing(tmp_path: Path) -> None:
    assert verify(tmp_path) == Verdict()


def test_the_command_lists_filters_and_sums_up(whole: Path) -> None:
    everything = json.loads(abps("outbound", whole, "--json").out)["outbound"]
    assert len(everything) == 3 * SEVERAL
    assert all(line["sent"] and line["what"] == "propose" for line in everything)
    listed = abps("outbound", whole, "--peer", "there").out.splitlines()
    assert len(listed) == 3 * SEVERAL
    assert f"session={PROPOSAL} round=1" in listed[0] and "101 B" in listed[0]
    assert abps("outbound", whole, "--last", "2").out.splitlines() == listed[-2:]
    for nothing in (["--peer", "nobody"], ["--kind", "hello"], ["--since", "2999-01-01"]):
        assert abps("outbound", whole, *nothing).out == "nothing of the kind has left this center\n"
    summary = abps("outbound", whole, "--summary").out
    assert "there" in summary and "1.5 kB" in summary
    (total,) = json.loads(abps("outbound", whole, "--summary", "--json").out)["outbound"]
    assert (total["messages"], total["bytes"], total["not_sent"]) == (15, 3 * 515, 0)


def test_the_command_says_what_is_not_sent(tmp_path: Path) -> None:
    with OutboundRecord(tmp_path, "here", 1, "c" * 64) as record:
        record.undelivered(record.message("there", Ping(1), 20), "no-address")
        record.message("there", Ping(1), 20)
    (tmp_path / "log.jsonl").touch()
    first, second = abps("outbound", tmp_path).out.splitlines()
    assert "not sent (no-address)" in first and "not sent" not in second
    assert "1 start" in abps("outbound", tmp_path, "--verify").out


def test_the_command_verifies(whole: Path, tmp_path: Path) -> None:
    head = verify(whole).head
    assert head is not None
    good = abps("outbound", whole, "--verify", "--noted", head.hash)
    assert good.code == ExitCode.OK and head.hash in good.out
    unknown = abps("outbound", whole, "--verify", "--noted", "0" * 64, "--json")
    assert unknown.code == ExitCode.BROKEN_RECORD
    assert json.loads(unknown.out)["noted_is_there"] is False
    assert abps("outbound", whole, "--noted", head.hash).code == ExitCode.USAGE
