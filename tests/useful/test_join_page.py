"""Every command of docs/join.md, run for real, in its order, on made patients and on real ones."""

from __future__ import annotations

import csv
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from abps_node.config import load_federation
from tests.support.command_line import abps
from tests.support.trained_center import patient_rows

PAGE = (Path(__file__).parents[2] / "docs/join.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
PACING = re.findall(r"^(?:min_peers|start_wait_s|round_min_s) = .+$", PAGE, re.MULTILINE)
Row = dict[str, object]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Newcomer:
    """Somebody who follows the page, and does what it asks for in between."""

    def __init__(self, folder: Path, rows: Sequence[Row]) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.ports = {"north": free_port(), "south": free_port()}
        self.running: list[subprocess.Popen[bytes]] = []
        with (folder / "export.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=";")
            writer.writeheader()
            writer.writerows(
                {key: str(value).replace(".", ",") for key, value in row.items()} for row in rows
            )

    def follow(self, command: str) -> str:
        """Prepare, type, and look at what it says."""
        if command.startswith("cp federation.toml"):
            self.agree_with_south()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            timeout=240,
            check=False,
        )
        out = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, f"{command}: {out}"
        if "schema infer" in command:
            self.change("schema.toml", '"fill in"', '"as agreed"')
        if command.startswith("abps init"):
            self.settle("north")
        return out

    def settle(self, name: str) -> None:
        """The three lines of the page, fewer rounds than a real center has, and a free port."""
        for line in PACING:
            key = line.partition(" = ")[0]
            self.change(f"{name}/federation.toml", rf"^{key} = .*$", line)
        self.change(f"{name}/federation.toml", r"^rounds = .*$", "rounds = 3")
        self.change(f"{name}/center.toml", "127.0.0.1:5555", f"127.0.0.1:{self.ports[name]}")

    def agree_with_south(self) -> None:
        """Another hospital with the same schema appears, and is running when north starts."""
        assert (
            abps("init", self.folder / "south", "--schema", self.folder / "schema.toml").code == 0
        )
        self.settle("south")
        (self.folder / "south/patients.csv").write_bytes(
            (self.folder / "patients.csv").read_bytes()
        )
        own = {name: self.folder / name / "federation.toml" for name in ("north", "south")}
        keys = {name: load_federation(path).roster[0].public_key for name, path in own.items()}
        text = own["south"].read_text(encoding="utf-8").partition("\n[[roster]]")[0] + "\n"
        text = text.replace("min_peers = 0", "min_peers = 1")
        text = text.replace("start_wait_s = 0.0", "start_wait_s = 60.0")
        text = text.replace("round_min_s = 0.0", "round_min_s = 1.0")
        for name, key in keys.items():
            text += f'[[roster]]\nid = "{name}"\npublic_key = "{key}"\n'
            text += f'address = "tcp://127.0.0.1:{self.ports[name]}"\n'
        for path in (self.folder / "federation.toml", own["south"]):
            path.write_text(text, encoding="utf-8")
        south = [sys.executable, "-m", "abps_node", "run", str(self.folder / "south/center.toml")]
        self.running.append(subprocess.Popen(south, stderr=subprocess.DEVNULL))

    def change(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text, times = re.subn(old, new, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert times, f"{name}: {old}"
        path.write_text(text, encoding="utf-8")

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


def made() -> list[Row]:
    return [
        {"patient_id": row["patient"], **row, "died": ("No", "Yes")[int(str(row["died"]))]}
        for row in patient_rows(160)
    ]


def stroke_patients(folder: Path) -> list[Row]:
    """The largest hospital of the International Stroke Trial whose number is 1."""
    if not Path(os.environ.get("ABPS_DATA_DIR", "none"), "ist/ist.csv.gz").is_file():
        pytest.skip("ist/ist.csv.gz is not there; ABPS_DATA_DIR names the folder of the data sets")
    outcome = abps("data", "prepare", "ist", "--out", folder / "ist", "--centers", "4")
    assert outcome.code == 0, outcome.err
    rows = pq.read_table(folder / "ist/centers/hospital-001/patients.parquet").to_pylist()
    return [
        {
            "patient_id": f"H1-{number:04d}",
            **{key: "" if value is None else value for key, value in row.items()},
            "died_14d": ("No", "Yes")[row["died_14d"]],
        }
        for number, row in enumerate(rows)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["made", "ist"])
def test_a_newcomer_gets_from_a_csv_into_a_federation(tmp_path: Path, table: str) -> None:
    rows = made() if table == "made" else stroke_patients(tmp_path)
    assert [command.split()[0] for command in COMMANDS].count("abps") == 9
    newcomer = Newcomer(tmp_path, rows)
    try:
        said = {command: newcomer.follow(command) for command in COMMANDS}
    finally:
        newcomer.close()
    assert "finished" in abps("status", tmp_path / "north").out
    assert "south" in abps("peers", tmp_path / "north").out  # they have met
    if table == "ist":
        inferred = next(text for command, text in said.items() if "schema infer" in command)
        assert inferred.strip() in PAGE
        draft = (
            (tmp_path / "schema.toml").read_text(encoding="utf-8").replace("as agreed", "fill in")
        )
        shown = PAGE.partition("[contract.data]")[2].partition("```")[0].strip().splitlines()
        assert [line for line in shown if line not in draft.splitlines()] == []
