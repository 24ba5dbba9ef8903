"""Small federations of real centers: made patients, short pacing, and edits of federation.toml."""

from __future__ import annotations

import os
import random
import socket
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tomli_w

from abps_node.config import CenterConfig, load_center_config
from launch.layout import FederationLayout, read_layout, write_federation
from protocol.contract import Contract

INPUTS = 5
PACING = {
    "min_peers": 1,
    "start_wait_s": 60.0,
    "round_min_s": 0.2,
    "negotiation_s": 1.5,
    "exchange_s": 3.0,
    "linger_s": 20.0,
}


def ward_contract(
    policy: dict[str, Any] | None = None, pacing: dict[str, Any] | None = None, **rest: Any
) -> Contract:
    """Five inputs, a small network, no chance in the choice of partners; sections overridden."""
    features = [{"name": f"x{number}", "kind": "continuous"} for number in range(INPUTS)]
    return Contract.model_validate(
        {
            "name": "wards",
            "data": {"label": "died", "features": features},
            "model": {"hidden": [16, 8]},
            "policy": {"rounds": 5, "epsilon": 0.0, **(policy or {})},
            "pacing": {**PACING, **(pacing or {})},
            **rest,
        }
    )


def ward_patients(rows: int = 120, seed: int = 1) -> pa.Table:
    """Patients whose outcome depends on the first input."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(rows, INPUTS))
    died = (inputs[:, 0] + rng.normal(size=rows) > 0).astype(int)
    columns = {f"x{number}": inputs[:, number] for number in range(INPUTS)}
    return pa.table({"died": died, **columns})


def ward_federation(
    directory: Path, centers: Sequence[str], contract: Contract | None = None, **options: Any
) -> FederationLayout:
    """A federation directory, discovery by directory; ``options`` go to ``write_federation``."""
    tables = {name: ward_patients(seed=place) for place, name in enumerate(centers, start=1)}
    options.setdefault("compare_alone", False)
    return write_federation(directory, contract or ward_contract(), tables, **options)


def edit_toml(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change a TOML file in place."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    edit(tables)
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")


def with_own_federation(
    center: CenterConfig, edit: Callable[[dict[str, Any]], None]
) -> CenterConfig:
    """The center with an edited copy of federation.toml of its own."""
    shared, copy = center.federation, center.path.parent / "federation.toml"
    tables = tomllib.loads(shared.path.read_text(encoding="utf-8"))
    if shared.discovery.path is not None:
        tables["discovery"]["path"] = str(shared.discovery.path)
    edit(tables)
    copy.write_text(tomli_w.dumps(tables), encoding="utf-8")
    edit_toml(center.path, lambda own: own.update(federation=copy.name))
    return load_center_config(center.path)


def with_static_discovery(layout: FederationLayout) -> FederationLayout:
    """Give every center a port of its own, and the roster its address."""
    ports = dict(zip((center.id for center in layout.centers), free_ports(), strict=False))

    def edit_roster(tables: dict[str, Any]) -> None:
        tables["discovery"] = {"kind": "static"}
        for member in tables["roster"]:
            member["address"] = f"tcp://127.0.0.1:{ports[member['id']]}"

    edit_toml(layout.federation, edit_roster)
    for center in layout.centers:
        bind = f"tcp://127.0.0.1:{ports[center.id]}"
        edit_toml(center.path, lambda tables, bind=bind: tables.update(bind=bind))  # type: ignore[misc]
    return read_layout(layout.directory)


def free_ports(count: int = 8) -> list[int]:
    """Ports that nobody listens on now, from outside the range that the system hands out."""
    rng = random.Random(os.urandom(8))
    found: list[int] = []
    while len(found) < count:
        port = rng.randrange(20_000, 32_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                found.append(port)
        except OSError:
            continue
    return found
