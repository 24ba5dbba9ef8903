"""The byte account of a center against the bytes that a TCP proxy between the two has counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from abps_node.config import CenterConfig
from abps_node.store.reader import Reader
from abps_node.transport.overhead import CURVE_CLIENT_HANDSHAKE_BYTES, CURVE_SERVER_HANDSHAKE_BYTES
from bench.counting_proxy import CountingProxy
from launch.layout import FederationLayout, read_layout
from tests.support.residents import WAIT_S, Residents, eventually
from tests.support.wards import edit_toml, ward_contract, ward_federation, with_own_federation

LAST_FRAMES_BYTES = 300
"""A goodbye and what answers it may be handed over and never leave, or leave and find nobody."""


def without_addresses(layout: FederationLayout) -> FederationLayout:
    """Static discovery that tells nothing, so that only the proxy leads from one to the other."""
    edit_toml(layout.federation, lambda tables: tables.update(discovery={"kind": "static"}))
    return read_layout(layout.directory)


def knows(birch: CenterConfig, address: str) -> CenterConfig:
    """The center with a copy of federation.toml in which the first of the roster has an address."""
    return with_own_federation(birch, lambda tables: tables["roster"][0].update(address=address))


def account(reader: Reader, direction: str) -> int:
    """Bytes on the wire that a center has accounted for."""
    return sum(row.wire_bytes for row in reader.traffic() if row.direction == direction)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_the_account_is_what_went_over_the_wire(
    tmp_path: Path, residents: Residents, dtype: str
) -> None:
    """Within the stated bytes for last frames: less than half a percent of a small run."""
    agreed = ward_contract({"rounds": 4, "wire_dtype": dtype}, model={"hidden": [128, 64]})
    layout = without_addresses(ward_federation(tmp_path / "f", ["amber", "birch"], agreed))
    amber = residents.start(layout.centers[0])
    await eventually(lambda: amber.endpoint)
    assert amber.endpoint is not None
    async with CountingProxy(amber.endpoint) as proxy:
        birch = residents.start(knows(layout.centers[1], proxy.address))
        async with asyncio.timeout(WAIT_S):
            assert [*await asyncio.gather(amber.task, birch.task)] == [0, 0]
        # When amber has ended, birch may knock once more; then nobody is there to answer.
        upstream = proxy.upstream - CURVE_CLIENT_HANDSHAKE_BYTES
        downstream = proxy.downstream - CURVE_SERVER_HANDSHAKE_BYTES
    assert sum(row.messages for row in birch.reader.traffic() if row.kind == "weights") >= 4
    slack = LAST_FRAMES_BYTES
    assert abs(upstream - account(birch.reader, "out")) <= slack
    assert abs(downstream - account(birch.reader, "in")) <= slack
    assert abs(upstream - account(amber.reader, "in")) <= slack
    assert abs(downstream - account(amber.reader, "out")) <= slack
    assert slack < 0.005 * (upstream + downstream)
