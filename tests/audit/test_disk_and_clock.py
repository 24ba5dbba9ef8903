"""Disk full, read-only, damaged files, clocks that jump: said, with a code, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from abps_node.audit.verify import verify
from abps_node.config import CenterConfig
from abps_node.exits import ExitCode
from abps_node.store.models import MODELS_DIR
from abps_node.store.reader import Reader
from tests.support import small_disk
from tests.support.center_processes import (
    ROOT,
    CenterProcess,
    CenterProcesses,
    last_round,
    wait_until,
)
from tests.support.command_line import abps
from tests.support.soundness import check_state, records
from tests.support.wards import ward_contract, ward_federation

ROUNDS = 12


def lonely(tmp_path: Path, rounds: int = ROUNDS, **policy: Any) -> CenterConfig:
    """A center that needs nobody."""
    pacing = {"min_peers": 0, "linger_s": 0.5, "round_min_s": 0.4}
    agreed = ward_contract({"rounds": rounds, **policy}, pacing)
    return ward_federation(tmp_path / "f", ["amber"], agreed).centers[0]


def on_a_small_disk(what: str, center: CenterConfig) -> dict[str, Any]:
    if not small_disk.available():
        pytest.skip("this system lets nobody mount a disk in a namespace of his own")
    command = ["unshare", "-rm", sys.executable, "-m", "tests.support.small_disk", what]
    done = subprocess.run(
        [*command, str(center.path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_full_disk_ends_the_center_and_loses_no_round(tmp_path: Path) -> None:
    found = on_a_small_disk("full", lonely(tmp_path))
    ended, again, last = found["ends"]
    assert ended["code"] == again["code"] == ExitCode.DISK_FULL
    assert "space" in ended["said"] and "Traceback" not in ended["said"]
    assert 3 <= found["kept"] < ROUNDS
    assert last["code"] == ExitCode.OK
    assert found["rounds"] == list(range(1, ROUNDS + 1))
    assert found["broken"] == ""


def test_a_state_directory_that_is_read_only(tmp_path: Path) -> None:
    found = on_a_small_disk("read-only", lonely(tmp_path, 200))
    (ended,) = found["ends"]
    assert ended["code"] == ExitCode.STORE
    assert "cannot be written: Read-only file system" in ended["said"]
    assert found["kept"] >= 2


def test_a_disk_that_becomes_read_only_in_the_middle(tmp_path: Path) -> None:
    center, since = lonely(tmp_path, 200), tmp_path / "read-only"
    compiler, shim = shutil.which("cc"), tmp_path / "shim.so"
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler, or no Linux: open files cannot be made read-only")
    source = ROOT / "tests/support/read_only_later.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(shim), str(source)], check=True)
    below = {"READ_ONLY_SINCE": str(since), "READ_ONLY_BELOW": str(center.state_dir)}
    process = subprocess.Popen(
        [sys.executable, "-m", "abps_node", "run", str(center.path)],
        cwd=ROOT,
        env={**os.environ, **below, "LD_PRELOAD": str(shim)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: last_round(center) >= 3, "round 3")
        since.touch()
        said = process.communicate(timeout=240)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == ExitCode.STORE, said
    assert "read-only" in said.splitlines()[-1].lower() and "Traceback" not in said
    # What was committed is whole; the next start goes on behind it.
    kept = records(center)
    assert len(kept) >= 3
    check_state(center)
    assert verify(center.state_dir).broken is None
    again = CenterProcess(center)
    try:
        again.wait_for_round(len(kept) + 1)
    finally:
        again.close()
    assert records(center)[: len(kept)] == kept


def stopped_after(processes: CenterProcesses, center: CenterConfig, round_number: int) -> None:
    process = processes.start(center)
    process.wait_for_round(round_number)
    process.send(signal.SIGTERM)
    assert process.wait_for_end() == ExitCode.STOPPED


def model_of(center: CenterConfig, round_number: int) -> Path:
    (path,) = (center.state_dir / MODELS_DIR).glob(f"round-{round_number:06d}-*")
    return path


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_a_damaged_model_gives_way_to_the_one_before(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    center = lonely(tmp_path)
    stopped_after(processes, center, 4)
    last = Reader(center.state_dir).status().last_round
    before = records(center)
    damage(model_of(center, last))
    process = processes.start(center)
    assert process.wait_for_end() == ExitCode.OK
    assert records(center)[:last] == before
    lost = [event.text for event in Reader(center.state_dir).events(kind="model-lost")]
    assert f"the model of round {last} is damaged" in lost[0]
    value = before[last - 2].validation.value
    assert f"that of round {last - 1} (validation {value:.4f})" in lost[0]
    assert lost[0] in process.said()
    check_state(center)


def test_without_any_whole_model_the_backup_is_asked_for(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    center = lonely(tmp_path)
    stopped_after(processes, center, 3)
    for path in (center.state_dir / MODELS_DIR).iterdir():
        damage(path)
    process = processes.start(center)
    assert process.wait_for_end() == ExitCode.DAMAGED
    assert "restore the state directory from a backup" in process.said()


def test_a_damaged_database_is_named(tmp_path: Path, processes: CenterProcesses) -> None:
    center = lonely(tmp_path)
    stopped_after(processes, center, 3)
    state = center.state_dir / "state.sqlite"
    whole = state.read_bytes()
    for content in (b"no database " * 500, whole[:4096] + b"\xa5" * 8192 + whole[12288:]):
        state.write_bytes(content)
        process = processes.start(center)
        assert process.wait_for_end() == ExitCode.DAMAGED
        assert str(state) in process.said() and "backup" in process.said()
    state.write_bytes(whole)
    process = processes.start(center)
    assert process.wait_for_end() == ExitCode.OK
    check_state(center)


JUMPING = """
import sys, time
from pathlib import Path
real, jump = time.time, Path(sys.argv[2])
def told():
    return real() + (float(jump.read_text()) if jump.exists() else 0.0)
time.time = told
time.time_ns = lambda: int(told() * 1e9)
sys.argv = ["abps", "run", sys.argv[1]]
from abps_node.cli.main import run
run()
"""


@pytest.mark.parametrize("hours", [1.0, -1.0])
def test_a_clock_that_jumps_changes_no_decision(tmp_path: Path, hours: float) -> None:
    """In the middle of a run; only what is told of times is off."""
    center, jump = lonely(tmp_path), tmp_path / "jump"
    command = [sys.executable, "-c", JUMPING, str(center.path), str(jump)]
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: last_round(center) >= 3, "round 3")
        (tmp_path / "new").write_text(str(hours * 3600))
        (tmp_path / "new").rename(jump)
        assert process.wait(240) == ExitCode.OK
    finally:
        process.kill()
        process.communicate()
    assert time.monotonic() - started < 240
    assert [record.round for record in records(center)] == list(range(1, ROUNDS + 1))
    check_state(center)
    assert Reader(center.state_dir).events(kind="rest")
    verdict = verify(center.state_dir)
    assert verdict.broken is None
    back = [note for note in verdict.notes if "the clock was set back by 3" in note]
    assert len(back) == (1 if hours < 0 else 0)


def _restarts_seen(other: CenterProcess) -> int:
    return len(other.reader.events(kind="peer-restarted"))


def test_a_restored_state_is_repaired(tmp_path: Path, processes: CenterProcesses) -> None:
    """An older backup comes back; the other center has seen later starts."""
    agreed = ward_contract({"rounds": 500}, {"start_wait_s": 3.0})
    amber, crow = ward_federation(tmp_path / "f", ["amber", "crow"], agreed).centers
    other = processes.start(crow)
    stopped_after(processes, amber, 1)
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", str(amber.state_dir), str(backup)], check=True)
    for number in (1, 2):
        later = processes.start(amber)
        wait_until(lambda number=number: _restarts_seen(other) >= number, "a start seen")
        later.send(signal.SIGTERM)
        assert later.wait_for_end() == ExitCode.STOPPED
    subprocess.run(["rm", "-r", str(amber.state_dir)], check=True)
    backup.rename(amber.state_dir)

    nothing = abps("repair", amber.path)
    assert nothing.code == ExitCode.STORE and "nothing to repair" in nothing.err
    refused = processes.start(amber)
    assert refused.wait_for_end() == ExitCode.SUPERSEDED
    repaired = abps("repair", amber.path)
    assert repaired.code == ExitCode.OK, repaired.err
    assert "crow has seen start 3" in repaired.out
    assert "start number raised from 2 to 3; the next start is 4" in repaired.out
    again = processes.start(amber)
    again.wait_for_round(Reader(amber.state_dir).status().last_round + 1)
    assert not Reader(amber.state_dir).events(kind="superseded")[1:]
    running = abps("repair", amber.path, "--start", "9")
    assert running.code == ExitCode.STORE and "running" in running.err
    again.send(signal.SIGTERM)
    assert again.wait_for_end() == ExitCode.STOPPED
    lower = abps("repair", amber.path, "--start", "2")
    assert lower.code == ExitCode.STORE and "allowed: 5" in lower.err
    verdict = verify(amber.state_dir)
    assert verdict.broken is None, verdict.broken
