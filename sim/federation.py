"""Many centers in one process: what every method of the simulator runs on.

A federation comes from a directory that the daemons could run as it stands, or from one table in
memory; both go through ``abps_node.data``, so that the simulator learns from what daemons learn
from, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from abps_node.config import load_center_config, load_federation
from abps_node.data import CenterData, load_center, prepare_center
from abps_node.errors import ConfigError
from protocol.contract import Contract, Goal, Policy
from protocol.goal import build_card
from sim.division import Division, Least, LeftOut, divide


@dataclass(frozen=True)
class SimCenter:
    """One center: its id and all that is known of its patients."""

    id: str
    data: CenterData
    goal: Goal | None = None
    """Its own goal where it differs from the contract's."""


@dataclass(frozen=True)
class Federation:
    """Centers under one contract, in order of their ids."""

    contract: Contract
    centers: tuple[SimCenter, ...]
    name: str
    left_out: tuple[LeftOut, ...] = ()
    """Centers of the source that are too small to take part, with the reason."""

    def with_policy(self, policy: Policy) -> Federation:
        """The same patients and splits under another policy; the cards are built anew."""
        contract = Contract.model_validate({**dict(self.contract), "policy": policy})
        centers = tuple(
            replace(
                center, data=replace(center.data, card=build_card(contract, center.data.counts))
            )
            for center in self.centers
        )
        return replace(self, contract=contract, centers=centers)


def federation_from_table(
    contract: Contract,
    table: pa.Table,
    center_column: str,
    *,
    name: str | None = None,
    least: Least | None = None,
) -> Federation:
    """The centers that ``center_column`` names, in memory; errors as ``sim.division.divide``."""
    called = name or contract.name
    division = divide(contract, table, center_column, source=called, least=least)
    return federation_of(contract, division, called)


def federation_of(contract: Contract, division: Division, name: str) -> Federation:
    """The centers of a division, split and encoded."""
    centers = tuple(
        SimCenter(center, prepare_center(contract, center, division.patients_of(center)))
        for center in division.rows
    )
    return Federation(contract, centers, name, division.left_out)


def load_federation_directory(path: Path) -> Federation:
    """The centers of a federation directory, from the very files that its daemons would read.

    Raises ``ConfigError`` if a center of the roster is not there, a file is faulty, or a center
    has objectives of its own, and
    ``DataError`` for a table that does not fit the contract.
    """
    shared = load_federation((path / "federation.toml").resolve())
    contract = shared.contract
    centers = []
    for member in sorted(member.id for member in shared.roster):
        file = path / "centers" / member / "center.toml"
        config = load_center_config(file, shared)
        if config.id != member or config.federation.path.resolve() != shared.path:
            raise ConfigError(
                f"{file}: found center {config.id!r} of {config.federation.path}, "
                f"allowed: {member!r} of {shared.path}"
            )
        if config.aims is not None:
            raise ConfigError(
                f"{file}: found objectives, private features or stage 2, allowed: none, since the "
                "simulator trains the contract's label alone; run this federation as daemons"
            )
        goal = config.goal if config.goal != contract.policy.goal else None
        centers.append(SimCenter(member, load_center(contract, member, config.data), goal))
    return Federation(contract, tuple(centers), contract.name)
