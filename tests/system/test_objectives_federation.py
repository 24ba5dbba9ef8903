"""Four centers of real patients that want different things and measure different things.

One wants mortality, one a length of stay, one both and a sensitive alarm, one mortality that is as
good for women as for men; each has columns that no other has. They federate all the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from abps_node.config import CenterConfig, load_center_config
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from launch.layout import FederationLayout, write_federation
from tests.support.residents import Residents
from tests.support.rhc_objectives import AIMS, PRIVATE, ROUNDS, contract, features, units, with_stay
from tests.support.soundness import check_state, disagreements, records
from tests.support.wards import edit_toml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = 240.0
"""On a machine with much else to do."""


def federation(directory: Path, kind: str, names: list[str]) -> FederationLayout:
    chosen = {name: with_stay(units()[name], seed) for seed, name in enumerate(names)}
    agreed = contract(kind, min_peers=len(names) - 1)
    layout = write_federation(directory, agreed, chosen, compare_alone=False)
    by_name = features()
    centers = []
    for center in layout.centers:
        own = {**AIMS[center.id], "private": [by_name[name] for name in PRIVATE[center.id]]}
        edit_toml(center.path, lambda tables, own=own: tables.update(own))  # type: ignore[misc]
        centers.append(load_center_config(center.path))
    return FederationLayout(layout.directory, tuple(centers))


@pytest.mark.parametrize(("kind", "names"), [("mlp", list(AIMS)), ("fedcare", ["coma", "copd"])])
async def test_centers_of_different_wishes_and_columns_federate(
    tmp_path: Path, kind: str, names: list[str]
) -> None:
    """Real daemons over real sockets, in one process, which saves many a start of Python."""
    layout = federation(tmp_path / "f", kind, names)
    residents = Residents()
    try:
        for resident in [residents.start(center) for center in layout.centers]:
            assert await asyncio.wait_for(resident.task, WAIT_S) == ExitCode.OK
    finally:
        await residents.close()
    check(layout)


def check(layout: FederationLayout) -> None:
    """What must hold afterwards in every center."""
    assert disagreements(layout.centers) == []
    for center in layout.centers:
        check_state(center)
        check_rounds(center)
        check_reports(center)
    (tuned,) = (center for center in layout.centers if center.id == "copd")
    check_stage2(Reader(tuned.state_dir))


def check_rounds(center: CenterConfig) -> None:
    """Partners were there, and every round says how the objectives stood to each other."""
    committed = records(center)
    assert len(committed) == ROUNDS
    assert any(record.partners for record in committed)
    wanted = [each["name"] for each in AIMS[center.id]["objective"]]
    for record in committed:
        told = record.objectives
        assert told is not None
        assert [each.name for each in told.objectives] == wanted
        assert all(np.isfinite(each.loss) and each.utility is not None for each in told.objectives)
        assert sum(each.mu for each in told.objectives) == pytest.approx(1.0)
        assert told.stationarity >= 0.0
        assert (told.conflicts is None) == (center.id != "copd")
        assert (
            record.validation.metric
            == {
                "chf": "auroc",
                "coma": "mae-gain",
                "copd": "mean",
                "cirrhosis": "mean",
            }[center.id]
        )


def check_reports(center: CenterConfig) -> None:
    """All objectives are reported, with the contract's label as the figure for comparison."""
    report = Reader(center.state_dir).report("federated")
    assert report is not None
    wanted = [each["name"] for each in AIMS[center.id]["objective"]]
    assert list(report["objectives"]) == wanted
    assert (report["auroc"] is None) == (center.id == "coma")


def check_stage2(reader: Reader) -> None:
    """Both models are told of, the better is kept, and no trunk moved after the last round."""
    report = reader.report("stage2")
    assert report is not None
    better = max(report["validation_before"], report["validation_after"])
    kept = report[f"validation_{report['kept']}"]
    assert kept == better and 0 <= report["epochs"] <= 3
    assert (reader.state_dir / "models" / report["model"]).is_file()
    sent = sum(total.messages for total in reader.traffic() if total.kind == "weights")
    promised = sum(
        session.state in ("complete", "sent-only", "received-only") for session in reader.sessions()
    )
    assert sent <= 2 * promised, "every trunk on the wire belongs to a session of a round"
