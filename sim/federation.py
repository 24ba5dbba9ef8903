"""Many centers in one process: what every method of the simulator runs on.

A federation comes from a directory that the daemons could run as it stands, or from one table in
memory; both go through ``abps_node.data``, so that the simulator learns from what daemons learn
from, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from abps_node.aims import label_alone
from abps_node.config import CenterConfig, load_center_config, load_federation
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

    Raises ``ConfigError`` if a center of the roster is not there, a file is faulty, or somebody
    learns more than the contract's label, and ``DataError`` for a table that does not fit the
    contract.
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
        _refuse_aims(config)
        goal = config.goal if config.goal != contract.policy.goal else None
        centers.append(SimCenter(member, load_center(contract, member, config.data), goal))
    return Federation(contract, tuple(centers), contract.name)


def _refuse_aims(config: CenterConfig) -> None:
    """``ConfigError``, naming file and key, where a daemon would learn more than the label."""
    aims, contract, file = config.aims, config.federation.contract, config.path
    if aims is None:
        return
    key, found, allowed = "local_step", str(aims.local_step), "plain"
    if contract.model.kind != "mlp":
        file, key = config.federation.path, "contract.model.kind"
        found, allowed = contract.model.kind, "mlp"
    elif aims.objectives != (label_alone(contract),):
        key, found, allowed = "objective", ", ".join(each.name for each in aims.objectives), "none"
    elif aims.private:
        key, found, allowed = "private", ", ".join(each.name for each in aims.private), "none"
    elif aims.stage2 is not None:
        key, found, allowed = "stage2", f"epochs = {aims.stage2.epochs}", "none"
    raise ConfigError(
        f"{file}: {key}: found {found}, allowed: {allowed}, since abps sim run trains the "
        "contract's label alone; run these centers as daemons, or see abps sim tasks"
    )
