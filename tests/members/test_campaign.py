"""A second campaign: beliefs go on, discounted; patients keep their splits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.campaign import moving
from abps_node.config import load_center_config
from abps_node.data import Fingerprint, split_rows
from abps_node.data.fingerprint import ColumnDigest
from abps_node.store.reader import Reader
from launch.layout import FederationLayout, write_federation
from protocol.beliefs import Belief
from protocol.contract import Contract
from tests.support.center_processes import CenterProcesses
from tests.support.command_line import abps
from tests.support.wards import edit_toml, ward_contract, ward_patients

pytestmark = pytest.mark.timeout(600)

FEATURES = [{"name": f"x{number}", "kind": "continuous"} for number in range(5)]


def grouped(label: str = "died", group: str | None = "patient", **data: Any) -> Contract:
    values = {"label": label, "features": FEATURES, **data}
    if group is not None:
        values["group"] = group
    return ward_contract({"rounds": 3}, {"linger_s": 5.0}, data=values)


def table(rows: int, seed: int, first: int = 0) -> pa.Table:
    """Patients with names, a second outcome, and up to two stays each."""
    found = ward_patients(rows, seed)
    names = [f"{seed}-{first + number // 2}" for number in range(rows)]
    later = np.array(found["died"]) ^ (np.arange(rows) % 5 == 0)
    return found.append_column("patient", [names]).append_column("died_later", [later])


def federation(directory: Path, contract: Contract) -> FederationLayout:
    tables = {name: table(160, place) for place, name in enumerate(["amber", "birch"], start=1)}
    return write_federation(directory, contract, tables, compare_alone=False)


def test_it_goes_on_with_discounted_beliefs_on_refreshed_data(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    layout = federation(tmp_path, grouped())
    for process in processes.start_all(layout.centers):
        assert process.wait_for_end() == 0
    before = {center.id: Reader(center.state_dir) for center in layout.centers}
    beliefs = {name: reader.beliefs() for name, reader in before.items()}
    starts = {name: reader.status().incarnation for name, reader in before.items()}
    assert all(belief.n for found in beliefs.values() for belief in found.values())

    # A new label, other values, new patients, and the old ones in another order.
    new = grouped("died_later").model_dump(mode="json", exclude_none=True)
    edit_toml(layout.federation, lambda tables: tables["contract"].update(data=new["data"]))
    for place, center in enumerate(layout.centers, start=1):
        fresh = pa.concat_tables([table(100, place, first=200), table(160, place).slice(20)])
        pq.write_table(fresh, center.data)
        refused = abps("run", center.path)
        assert refused.code != 0 and "another contract" in refused.err
        done = abps("campaign", center.path, "--discount", "0.5")
        assert done.code == 0, done.err
        assert "begins at round 1" in done.out
    for center in (load_center_config(center.path) for center in layout.centers):
        archive = center.state_dir.with_name("state.campaign-1")
        old, now = Reader(archive), Reader(center.state_dir)
        assert old.status().last_round == 3 and old.beliefs() == beliefs[center.id]
        assert now.status().last_round == 0
        for peer, belief in now.beliefs().items():
            assert belief == beliefs[center.id][peer].discounted(0.5, Belief(), Belief())
            assert belief.n == math.floor(beliefs[center.id][peer].n / 2)
        (event,) = now.events(kind="campaign")
        assert event.data["archive"] == archive.name and event.data["discount"] == 0.5
    carried = {c.id: Reader(c.state_dir).beliefs() for c in layout.centers}
    started = [load_center_config(center.path) for center in layout.centers]
    for process in processes.start_all(started):
        assert process.wait_for_end() == 0, process.said()
        first, *_ = (view.record for view in process.reader.rounds())
        for peer, kept in first.beliefs.items():
            assert kept.n - carried[process.center.id][peer].n in (0, 1)
        assert process.reader.beliefs() == process.reader.folded_beliefs()
        assert process.reader.status().incarnation == starts[process.center.id] + 1


def test_what_would_move_a_patient_is_refused_and_changes_nothing(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    layout = federation(tmp_path, grouped(group=None))
    amber, birch = layout.centers
    for process in processes.start_all(layout.centers):
        assert process.wait_for_end() == 0
    pq.write_table(table(200, 1), amber.data)
    done = abps("campaign", amber.path, "--discount", "1")
    assert done.code == 11 and "name one" in done.err
    assert json.loads(abps("status", amber.path, "--json").out)["last_round"] == 3
    assert [path.name for path in amber.state_dir.parent.glob("state*")] == ["state"]
    # The same rows in the same order: nobody can have moved.
    assert abps("campaign", birch.path, "--discount", "1").code == 0
    assert abps("campaign", birch.path, "--discount", "1.5").code == 2


names = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=60)


@given(names, names, st.randoms(), st.integers(0, 2**63 - 1))
def test_no_patient_moves_whoever_comes_or_goes(
    before: list[str], new: list[str], random: Any, seed: int
) -> None:
    data = grouped(split_seed=seed).data
    after = before[: len(before) // 2] + new
    random.shuffle(after)
    where = []
    for patients in (before, after):
        labels = np.array([random.random() < 0.5 for _ in patients], dtype=np.float64)
        rows = split_rows(data, "amber", labels, np.array(patients, dtype=object))
        parts = (rows.train, rows.validation, rows.test)
        where.append({patients[row]: name for name, part in zip("abc", parts) for row in part})  # noqa: B905
    for patient in where[0].keys() & where[1].keys():
        assert where[0][patient] == where[1][patient]


def test_every_reason_for_which_a_patient_could_move_is_named() -> None:
    digest = ColumnDigest(ordered="0", sorted="0")
    seen = Fingerprint(rows=9, columns={"x0": digest}, splits="s", encoding="e")
    assert moving(grouped(), grouped("died_later"), seen, seen) is None
    assert "split_seed" in str(moving(grouped(), grouped(split_seed=1), seen, seen))
    assert "data.group" in str(moving(grouped(), grouped(group=None), seen, seen))
    plain = grouped(group=None)
    assert moving(plain, plain, seen, seen) is None
    for other in ({"rows": 10}, {"splits": "t"}, {"columns": {}}):
        assert moving(plain, plain, seen, seen.model_copy(update=other)) is not None
    assert moving(plain, plain, None, seen) is not None
