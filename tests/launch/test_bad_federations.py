"""What is wrong with a federation or with one of its disks is one clear line of the launcher."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from launch.layout import FederationLayout
from tests.support import small_disk
from tests.support.center_processes import ROOT, WAIT_S
from tests.support.layouts import small_federation

LAUNCH = (sys.executable, "-m", "abps_node", "launch", "local")


def launch(layout: FederationLayout, *options: str, before: str = "") -> subprocess.Popen[str]:
    """``abps launch local``; ``before``: shell commands in a mount namespace of its own."""
    command = [*LAUNCH, str(layout.directory), *options]
    if before:
        command = ["unshare", "-rm", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def about(center: str, said: str) -> list[str]:
    """The launcher's lines about a center."""
    return [line for line in said.splitlines() if line.startswith(f"{center}: ")]


def test_two_centers_with_one_key(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["far", "near"])
    text = layout.federation.read_text()
    first, second = re.findall(r'public_key = "(.+)"', text)
    layout.federation.write_text(text.replace(second, first))
    run = launch(layout)
    out, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == ExitCode.CONFIG, out + said
    assert "roster: found public_key" in said and "2 times, allowed: once" in said
    assert "Traceback" not in said
    assert not any(center.state_dir.exists() for center in layout.centers), "nothing was started"


@pytest.mark.slow
def test_centers_whose_contract_differs(tmp_path: Path) -> None:
    here = small_federation(tmp_path / "here", ["far", "near"], rounds=3)
    shutil.copytree(here.directory, tmp_path / "there")
    there = FederationLayout(**{**vars(here), "directory": tmp_path / "there"})
    path = tmp_path / "there" / "federation.toml"
    text = path.read_text()
    assert "rounds = 3" in text
    text = text.replace("rounds = 3", "rounds = 4")
    path.write_text(re.sub(r'path = ".*"', f'path = "{here.directory}/cards"', text))
    runs = [launch(here, "--slice", "1/2"), launch(there, "--slice", "2/2")]
    for center, run in zip(("far", "near"), runs, strict=True):
        out, said = run.communicate(timeout=2 * WAIT_S)
        assert run.returncode == 1, out + said
        (line,) = about(center, out + said)
        assert f"exit {int(ExitCode.REFUSED)}" in line
        assert "refused the handshake" in line


@pytest.mark.slow
def test_a_full_disk_stops_one_center_only(tmp_path: Path) -> None:
    if not small_disk.available():
        pytest.skip("this system lets nobody mount a disk in a namespace of his own")
    layout = small_federation(tmp_path / "fed", ["far", "mid", "near"], rounds=3)
    state = layout.centers[0].state_dir
    state.mkdir(parents=True)
    run = launch(layout, before=f"mount -t tmpfs -o size=128k none '{state}'")
    out, said = run.communicate(timeout=2 * WAIT_S)
    assert run.returncode == 1, out + said
    (line,) = about("far", out + said)
    assert f"exit {int(ExitCode.DISK_FULL)}" in line
    assert "space" in line and "started again" not in line
    for center in layout.centers[1:]:
        assert Reader(center.state_dir).status().finished
