"""The batch script, and what is refused before Slurm is asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.sbatch import job_name
from launch.layout import FederationLayout, LayoutError
from launch.slurm import SCRIPT_NAME, nodes_for, plain_script
from launch.supervisor import LaunchError
from tests.support.command_line import abps
from tests.support.layouts import small_federation

PLAIN = Path(__file__).parents[2] / "launch" / SCRIPT_NAME


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> FederationLayout:
    return small_federation(tmp_path_factory.mktemp("my data") / "fed", ["a", "b", "c"])


def fake_sbatch(folder: Path, body: str) -> str:
    """A PATH with an sbatch on it that does this."""
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def options(script: str) -> list[str]:
    return [shlex.split(line)[1] for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_a_dry_run_prints_the_script_and_writes_nothing(layout: FederationLayout) -> None:
    before = sorted(layout.directory.rglob("*"))
    outcome = abps(
        *("launch", "slurm", layout.directory, "--nodes", "3", "--dry-run"),
        *("--partition", "long", "--time", "2:00:00", "--account", "icu", "--constraint", "avx2"),
        *("--memory", "4G", "--cpus-per-node", "2", "--option", "qos=low", "--interface", "ib0"),
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert sorted(layout.directory.rglob("*")) == before
    assert set(options(outcome.out)) >= {
        *("--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=2", "--no-kill", "--requeue"),
        *("--partition=long", "--time=2:00:00", "--account=icu", "--constraint=avx2"),
        *("--mem=4G", "--qos=low", f"--chdir={layout.directory}", "--signal=TERM@120"),
    }
    assert f"directory={shlex.quote(str(layout.directory))}\n" in outcome.out
    assert f'{sys.executable} -m abps_node launch slurm-task "$directory" --interface ib0' in (
        outcome.out
    )


def test_both_scripts_are_good_shell(layout: FederationLayout, tmp_path: Path) -> None:
    rendered = abps("launch", "slurm", layout.directory, "--nodes", "1", "--dry-run").out
    for text in (rendered, plain_script()):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        assert max(map(len, plain_script().splitlines())) <= 100


def test_the_plain_script_is_up_to_date() -> None:
    assert PLAIN.read_text(encoding="utf-8") == plain_script(), (
        "python -c 'import launch.slurm as s; print(s.plain_script(), end=\"\")' "
        "> launch/federation.sbatch"
    )
    assert os.access(PLAIN, os.X_OK)


def test_the_plain_script_says_how_it_is_used() -> None:
    done = subprocess.run(["bash", str(PLAIN)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "usage: sbatch [--nodes=N] federation.sbatch DIR" in done.stderr


def test_submission(
    layout: FederationLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_sbatch(tmp_path, f'echo "$@" > {tmp_path}/asked; echo "41;x"'))
    outcome = abps("launch", "slurm", layout.directory, "--centers-per-node", "2")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Job 41: 3 centers on 2 nodes, up to 2 each. Output: ")
    script = layout.directory / SCRIPT_NAME
    assert (tmp_path / "asked").read_text() == f"--parsable {script}\n"
    assert "--nodes=2" in options(script.read_text())


def test_too_many_centers_for_the_cores_of_a_node_are_warned_of(
    layout: FederationLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.local.CENTERS_PER_CORE", 1)
    command = ("launch", "slurm", layout.directory, "--dry-run", "--nodes")
    outcome = abps(*command, "2")
    assert outcome.code == 0 and "#SBATCH --nodes=2" in outcome.out
    (line,) = outcome.err.splitlines()
    assert line.startswith("on a node 2 centers share 1 core, more than 1 on each: ")
    assert abps(*command, "2", "--cpus-per-node", "2").err == ""


@pytest.mark.parametrize(
    ("nodes", "per_node", "wanted"),
    [(1, None, 1), (12, None, 12), (None, 1, 12), (None, 12, 1), (None, 5, 3), (4, 3, 4)],
)
def test_from_one_center_per_node_to_all_on_one(
    nodes: int | None, per_node: int | None, wanted: int
) -> None:
    assert nodes_for(12, nodes, per_node) == wanted


@pytest.mark.parametrize(
    ("nodes", "per_node", "text"),
    [
        (None, None, "found none, allowed: one of them, or both"),
        (3, 3, "found 3 × 3 = 9, allowed: at least 12, as many as there are centers"),
        (13, None, "--nodes: found 13, allowed: at most 12, as many as there are centers"),
    ],
)
def test_nodes_that_do_not_fit(nodes: int | None, per_node: int | None, text: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(text)):
        nodes_for(12, nodes, per_node)


def test_a_job_is_named_after_its_federation() -> None:
    assert job_name("Synthetic (α=0.5, seed 0)") == "abps-Synthetic-0.5-seed-0"
    assert job_name("α") == "abps"


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 12])
def test_shares_are_disjoint_complete_and_even(layout: FederationLayout, nodes: int) -> None:
    many = FederationLayout(layout.directory, layout.centers * 4)
    parts = [many.part(number + 1, nodes).centers for number in range(nodes)]
    assert sorted(c.id for part in parts for c in part) == sorted(c.id for c in many.centers)
    assert max(map(len, parts)) == -(-12 // nodes)


def refused(*arguments: str | Path) -> str:
    """The one line of a refusal."""
    outcome = abps("launch", "slurm", *arguments)
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    return line


def test_without_sbatch(
    layout: FederationLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(layout.directory, "--nodes", "1")
    assert line.startswith("abps: sbatch: not found on the PATH; submit on a login node")


def test_an_sbatch_that_refuses(
    layout: FederationLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "sbatch: error: invalid partition specified: long"
    monkeypatch.setenv("PATH", fake_sbatch(tmp_path, f"echo '{words}' >&2; exit 1"))
    line = refused(layout.directory, "--nodes", "1", "--partition", "long")
    assert line == f"abps: {layout.directory / SCRIPT_NAME}: not submitted: {words}"


def test_no_federation(tmp_path: Path) -> None:
    assert "not a federation directory" in refused(tmp_path, "--nodes", "1")


def test_an_option_that_is_none(layout: FederationLayout) -> None:
    line = refused(layout.directory, "--nodes", "1", "--option", "qos low")
    assert line == "abps: --option: found 'qos low', allowed: an option of sbatch, name=value"


def test_addresses_that_are_known_beforehand(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    text = layout.federation.read_text(encoding="utf-8")
    text = text.replace('kind = "directory"', 'kind = "static"').replace('path = "cards"\n', "")
    layout.federation.write_text(text.replace("poll_s = 0.5\n", ""), encoding="utf-8")
    line = refused(layout.directory, "--nodes", "1", "--dry-run")
    assert 'discovery.kind: found "static", allowed: directory or mqtt' in line


def test_a_share_needs_centers(layout: FederationLayout) -> None:
    with pytest.raises(LayoutError, match="no center 'z'"):
        layout.only(["z"])
