"""federation.toml and center.toml, read, checked against each other and resolved.

The pydantic models of ``abps_node.config_files`` are what people write; ``Federation`` and
``CenterConfig`` are what the program uses: paths absolute, defaults filled in.

A bad file gives one ``ConfigError`` whose text has one line per problem. That the own key pair is
the one on the roster is not checked here, where no secret is read, but by ``abps_node.identity``.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from abps_node.addresses import WILDCARD_HOSTS, split_address
from abps_node.aims import Aims, aims_problems, label_alone
from abps_node.config_broker import Broker, BrokerAccess, own_access, shared_broker
from abps_node.config_files import (
    NO_BIND,
    BrokerTable,
    CenterFile,
    FederationFile,
    LogLevel,
    Member,
)
from abps_node.config_text import checked, shown
from abps_node.errors import ConfigError
from protocol.contract import Contract, Goal, Policy

__all__ = [
    "Broker",
    "BrokerAccess",
    "CenterConfig",
    "Discovery",
    "Federation",
    "Member",
    "load_center_config",
    "load_federation",
    "read_toml",
]


@dataclass(frozen=True)
class Discovery:
    """How addresses are found."""

    kind: Literal["static", "directory", "mqtt"]
    path: Path | None
    """Set if and only if ``kind`` is ``directory``."""
    poll_s: float
    broker: Broker | None = None
    """Set if and only if ``kind`` is ``mqtt``."""


@dataclass(frozen=True)
class Federation:
    """A checked federation.toml."""

    path: Path
    contract: Contract
    discovery: Discovery
    roster: tuple[Member, ...]
    simulation: bool

    def member(self, center_id: str) -> Member | None:
        """The roster's entry of a center."""
        return next((member for member in self.roster if member.id == center_id), None)


@dataclass(frozen=True)
class CenterConfig:
    """A checked center.toml together with its federation; all paths absolute."""

    path: Path
    id: str
    federation: Federation
    data: Path
    state_dir: Path
    secret_key: Path
    members: Path
    """Changes to the roster; need not exist."""
    bind: str | None
    """None for a center that takes no connections."""
    advertise: str | None
    """Port 0 stands for the port that is bound in the end."""
    goal: Goal
    """The own goal where one is given, else the contract's."""
    seed: int
    compare_alone: bool
    log_level: LogLevel
    join_from: Literal["initial", "partner"] = "initial"
    """Where a center that has never merged begins."""
    record_stimuli: int = 0
    """MiB that are kept; 0 for none."""
    aims: Aims | None = None
    """What this center learns beyond the contract; None for the contract's label alone."""
    metrics_bind: str | None = None
    """Where metrics are served; None for nowhere."""
    mqtt: BrokerAccess | None = None
    """Set if and only if discovery goes through a broker."""

    @property
    def member(self) -> Member:
        """This center's own entry on the roster; loading has made sure that there is one."""
        return next(member for member in self.federation.roster if member.id == self.id)


def load_federation(path: str | Path) -> Federation:
    """Read and check federation.toml; ``ConfigError`` names every problem."""
    federation, problems = _read_federation(Path(path))
    if federation is None:
        raise ConfigError("\n".join(problems))
    return federation


def load_center_config(path: str | Path, known: Federation | None = None) -> CenterConfig:
    """Read and check center.toml and the federation.toml that it names; errors as above.

    ``known`` saves reading the latter again, if it is that one.
    """
    path = Path(path)
    raw = read_toml(path)
    file, problems = checked(CenterFile, raw, path)
    federation = None
    if isinstance(named := raw.get("federation"), str) and named:
        if known is not None and known.path == _absolute(path, named):
            federation = known
        else:
            federation, more = _read_federation(_absolute(path, named))
            problems += more
    if file is not None and federation is not None:
        problems += _center_problems(path, file, federation)
    if problems or file is None or federation is None:
        raise ConfigError("\n".join(problems))
    return CenterConfig(
        path=path,
        id=file.id,
        federation=federation,
        data=_absolute(path, file.data),
        state_dir=_absolute(path, file.state_dir),
        secret_key=_absolute(path, file.secret_key),
        members=_absolute(path, file.members),
        bind=None if file.bind == NO_BIND else file.bind,
        advertise=file.advertise,
        goal=file.goal if file.goal is not None else federation.contract.policy.goal,
        seed=file.seed,
        compare_alone=file.compare_alone,
        join_from=file.join_from,
        log_level=file.log_level,
        record_stimuli=file.record_stimuli,
        aims=_aims(file, federation.contract),
        metrics_bind=file.metrics.bind if file.metrics is not None else None,
        mqtt=own_access(path, file.id, file.mqtt) if federation.discovery.broker else None,
    )


def _aims(file: CenterFile, contract: Contract) -> Aims | None:
    """None where the plain step of the contract says it all."""
    unused = not (file.objective or file.private or file.stage2)
    if unused and file.local_step in (None, "plain") and contract.model.kind == "mlp":
        return None
    return Aims(
        objectives=tuple(file.objective) or (label_alone(contract),),
        private=tuple(file.private),
        local_step=file.local_step or "pareto",
        private_features=file.private_features,
        normalization=file.gradient_normalization,
        stationarity=file.stationarity,
        stage2=file.stage2,
    )


def _absolute(file: Path, named: str) -> Path:
    return (file.parent / Path(named).expanduser()).resolve()


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, unchecked; ``ConfigError`` names the file and the place in it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start}: found bytes that are not UTF-8, allowed: TOML in UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).partition(" (at ")
        raise ConfigError(f"{path}: {where.rstrip(')')}: not TOML: {what}") from error


def _read_federation(path: Path) -> tuple[Federation | None, list[str]]:
    try:
        raw = read_toml(path)
    except ConfigError as error:
        return None, [str(error)]
    file, problems = checked(FederationFile, raw, path)
    if file is not None:
        problems = [f"{path}: {problem}" for problem in _federation_problems(file)]
    if problems or file is None:
        return None, problems
    folder = file.discovery.path
    discovery = Discovery(
        kind=file.discovery.kind,
        path=None if folder is None else _absolute(path, folder),
        poll_s=file.discovery.poll_s,
        broker=shared_broker(file.discovery),
    )
    return Federation(path, file.contract, discovery, tuple(file.roster), file.simulation), []


def _federation_problems(file: FederationFile) -> list[str]:
    problems = []
    for field in ("id", "public_key", "address"):
        counts = Counter(getattr(member, field) for member in file.roster)
        problems += [
            f"roster: found {field} {shown(value)} {count} times, allowed: once"
            for value, count in counts.items()
            if count > 1 and value is not None
        ]
    policy = file.contract.policy
    if policy.goal != "none" and not _has_threshold(policy):
        problems.append(f"contract.policy.goal: {_no_threshold(policy.goal)}")
    return problems


def _has_threshold(policy: Policy) -> bool:
    return policy.tau_sim is not None or policy.keep_fraction is not None


def _no_threshold(goal: Goal) -> str:
    return (
        f"found {shown(goal)}, allowed: none, since contract.policy has neither tau_sim nor "
        "keep_fraction and the filter would have no threshold"
    )


def _center_problems(path: Path, file: CenterFile, federation: Federation) -> list[str]:
    problems = []
    member = federation.member(file.id)
    if member is None:
        ids = ", ".join(member.id for member in federation.roster)
        problems.append(
            f"id: found {shown(file.id)}, allowed: an id on the roster of {federation.path}: {ids}"
        )
    if file.goal not in (None, "none") and not _has_threshold(federation.contract.policy):
        problems.append(f"goal: {_no_threshold(file.goal)} ({federation.path})")
    problems += _aims_problems(file, federation)
    told = file.advertise or (member.address if member else None)
    if file.bind == NO_BIND:
        if file.advertise is not None:
            problems.append(
                f"advertise: found {shown(file.advertise)}, allowed: nothing, since bind is "
                f"{shown(NO_BIND)}"
            )
    elif (
        federation.discovery.kind != "static"
        and split_address(file.bind)[0] in WILDCARD_HOSTS
        and told is None
    ):
        problems.append(
            f"advertise: missing, allowed: tcp://host:port, since bind is {shown(file.bind)} and "
            "the others would not learn where to connect"
        )
    if file.mqtt is not None:
        problems += _mqtt_problems(file.mqtt, federation)
    return [f"{path}: {problem}" for problem in problems]


def _aims_problems(file: CenterFile, federation: Federation) -> list[str]:
    aims = _aims(file, federation.contract)
    if aims is not None:
        return [
            f"{problem} ({federation.path})" if "contract" in problem else problem
            for problem in aims_problems(federation.contract, aims)
        ]
    unused = {
        "private_features": file.private_features != "always",
        "gradient_normalization": file.gradient_normalization != "none",
        "stationarity": file.stationarity is not None,
    }
    return [
        f"{key}: found {shown(getattr(file, key))}, allowed: nothing, since there is no "
        "[[objective]]"
        for key, given in unused.items()
        if given
    ]


def _mqtt_problems(table: BrokerTable, federation: Federation) -> list[str]:
    discovery = federation.discovery
    if discovery.broker is None:
        return [
            "mqtt: found a table, allowed: nothing, since discovery.kind of "
            f"{federation.path} is {shown(discovery.kind)}"
        ]
    if table.ca_file is not None and not discovery.broker.tls:
        return [
            f"mqtt.ca_file: found {shown(table.ca_file)}, allowed: nothing, since discovery.tls of "
            f"{federation.path} is false"
        ]
    return []
