"""What people write into federation.toml and center.toml, as strict pydantic models.

``docs/configuration.md`` is made from these models and from ``protocol.contract``; what the values
mean together is checked in ``abps_node.config``.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from abps_node.addresses import is_concrete, is_loopback, split_address
from abps_node.aims import (
    MAX_OBJECTIVES,
    LocalStep,
    Normalization,
    Objective,
    PrivateFeatures,
    Stage2,
)
from abps_node.config_text import shown
from protocol.contract import CENTER_ID_PATTERN, Contract, Feature, Goal, Strict

LogLevel = Literal["debug", "info", "warning", "error"]

_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)


NO_BIND: Final = "none"
"""In the place of an address: the center takes no connections, it only opens them."""


def _bind_address(text: str) -> str:
    if text != NO_BIND:
        split_address(text)
    return text


def _metrics_address(text: str) -> str:
    split_address(text)
    return text


def _peer_address(text: str) -> str:
    if not is_concrete(text):
        raise ValueError("others cannot connect to a wildcard host or to port 0")
    return text


def _host_name(text: str) -> str:
    text.encode("idna")  # UnicodeError, a ValueError, for empty and overlong parts
    return text


def _curve_key(text: str) -> str:
    digits = [_Z85.index(character) for character in text]  # ValueError for a foreign character
    values = [_base85(digits[start : start + 5]) for start in range(0, len(digits), 5)]
    if len(text) != 40 or max(values) >= 2**32:
        raise ValueError("not the z85 form of 32 bytes")
    return text


def _base85(digits: list[int]) -> int:
    value = 0
    for digit in digits:
        value = value * 85 + digit
    return value


Id = Annotated[
    str,
    Field(
        pattern=CENTER_ID_PATTERN,
        json_schema_extra={
            "allowed": "1 to 63 of the characters a-z 0-9 . _ -, the first a letter or digit"
        },
    ),
]
BindAddress = Annotated[
    str,
    AfterValidator(_bind_address),
    Field(json_schema_extra={"allowed": "tcp://host:port, port 0 to 65535, or none"}),
]
PeerAddress = Annotated[
    str,
    AfterValidator(_peer_address),
    Field(
        json_schema_extra={"allowed": "tcp://host:port, a host that others reach, port 1 to 65535"}
    ),
]
CurveKey = Annotated[
    str,
    AfterValidator(_curve_key),
    Field(json_schema_extra={"allowed": "a public key, 40 characters of z85"}),
]
HostName = Annotated[
    str,
    AfterValidator(_host_name),
    Field(
        pattern=r"^[A-Za-z0-9._:-]+$",
        max_length=253,
        json_schema_extra={"allowed": "a host name or an IP address, without a port"},
    ),
]
TopicPrefix = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$",
        max_length=128,
        json_schema_extra={
            "allowed": "levels of A-Z a-z 0-9 . _ - with / between them, at most 128 characters"
        },
    ),
]
VariableName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        max_length=128,
        json_schema_extra={"allowed": "the name of an environment variable"},
    ),
]
FilePath = Annotated[str, Field(min_length=1, json_schema_extra={"allowed": "a path"})]


class Member(Strict):
    """A center on the roster. Its public key is its identity."""

    id: Id = Field(description="the center's name, unique in the federation")
    public_key: CurveKey = Field(description="what `abps init` printed there")
    address: PeerAddress | None = Field(
        default=None, description="where it listens; needed by `static` discovery"
    )


_ONLY_FOR: Final = {
    "path": "directory",
    "host": "mqtt",
    "port": "mqtt",
    "tls": "mqtt",
    "prefix": "mqtt",
    "keepalive_s": "mqtt",
}
_NEEDED: Final = {"directory": {"path": "a folder"}, "mqtt": {"host": "the broker's host"}}


class DiscoveryTable(Strict):
    """How centers learn each other's addresses. Never a source of trust."""

    kind: Literal["static", "directory", "mqtt"] = Field(
        default="static",
        description="static: the roster's addresses; directory: each center drops its address "
        "into a shared folder and watches it; mqtt: each center leaves its address with a broker, "
        "as a retained message (`docs/mqtt.md`)",
    )
    path: FilePath | None = Field(default=None, description="the shared folder (directory only)")
    poll_s: float = Field(
        default=2.0, gt=0, le=3600, description="seconds between looks into the folder"
    )
    host: HostName | None = Field(
        default=None, description="the broker; with TLS its certificate must be for this name"
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="of the broker; default: 8883, without TLS 1883"
    )
    tls: bool = Field(
        default=True,
        description="whether the broker is spoken to over TLS; without, passwords go in clear",
    )
    prefix: TopicPrefix = Field(
        default="abps", description="first levels of the topics; one of its own per federation"
    )
    keepalive_s: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="seconds; the broker calls a center offline after one and a half times as long "
        "without a sign of life",
    )

    @model_validator(mode="after")
    def _keys_fit_kind(self) -> Self:
        for key, what in _NEEDED.get(self.kind, {}).items():
            if getattr(self, key) is None:
                raise ValueError(f'{key}: missing, allowed: {what}, since kind is "{self.kind}"')
        for key in sorted(self.model_fields_set & set(_ONLY_FOR)):
            if self.kind != _ONLY_FOR[key]:
                found = shown(getattr(self, key))
                raise ValueError(
                    f'{key}: found {found}, allowed: nothing, since kind is "{self.kind}"'
                )
        return self


class BrokerTable(Strict):
    """This center at the MQTT broker. For `discovery.kind = "mqtt"` only."""

    username: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="default: the center's id, as the example's access rules expect it",
    )
    password_file: FilePath | None = Field(
        default=None, description="path of a file with the password in one line, mode 0600"
    )
    password_env: VariableName | None = Field(
        default=None, description="name of an environment variable with it, instead of a file"
    )
    ca_file: FilePath | None = Field(
        default=None,
        description="certificate of the authority that signed the broker's (PEM); default: the "
        "authorities that the operating system trusts",
    )
    events: bool = Field(
        default=True,
        description="whether summaries of rounds go to the broker, for dashboards; never anything "
        "of a patient, never weights",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.password_file is not None and self.password_env is not None:
            raise ValueError(
                f"password_env: found {shown(self.password_env)}, allowed: nothing, since "
                "password_file is given"
            )
        return self


class MetricsTable(Strict):
    """Numbers about the running center for a Prometheus server."""

    bind: Annotated[
        str,
        AfterValidator(_metrics_address),
        Field(json_schema_extra={"allowed": "tcp://host:port, port 0 to 65535"}),
    ] = Field(description="where `/metrics` is served over HTTP; port 0 a free port")
    beyond_loopback: bool = Field(
        default=False,
        description="allows a `bind` that other machines can reach; there is neither password nor "
        "encryption",
    )

    @model_validator(mode="after")
    def _stays_here(self) -> Self:
        host, _ = split_address(self.bind)
        if not self.beyond_loopback and not is_loopback(host):
            raise ValueError(
                f"bind: found {shown(self.bind)}, allowed: 127.0.0.1, [::1] or localhost, unless "
                "beyond_loopback = true"
            )
        return self


class FederationFile(Strict):
    """federation.toml, the same file in all centers."""

    contract: Contract = Field(description="what all centers agree on; its hash is compared")
    discovery: DiscoveryTable = Field(
        default=DiscoveryTable(), description="how addresses are found; outside the hash"
    )
    roster: list[Member] = Field(
        min_length=1, description="who may take part; outside the hash, so that it can grow"
    )
    simulation: bool = Field(
        default=False,
        description="marks a directory that holds the secret keys of several centers",
    )


class CenterFile(Strict):
    """center.toml, one center's own choices. Relative paths start at the file's folder."""

    id: Id = Field(description="this center's id on the roster")
    federation: FilePath = Field(description="path of federation.toml")
    data: FilePath = Field(description="the patient table, .csv or .parquet")
    secret_key: FilePath = Field(description="path of the secret key file, mode 0600")
    bind: BindAddress = Field(
        description="where this center listens; host * means all interfaces, port 0 a free port; "
        "none: it takes no connections and opens them all (`docs/members.md`)"
    )
    advertise: PeerAddress | None = Field(
        default=None,
        description="what the others are told, where that is not `bind` (NAT, containers); "
        "default: `bind` with the real port, if its host is not a wildcard",
    )
    state_dir: FilePath = Field(
        default="state", description="folder for the durable state; made at the first start"
    )
    members: FilePath = Field(
        default="members.json",
        description="the changes to the roster that `abps peers add` and `abps peers revoke` made "
        "(`docs/members.md`)",
    )
    goal: Goal | None = Field(
        default=None, description="this center's own goal; default: `contract.policy.goal`"
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="of this center's own randomness (exploration, ties)"
    )
    join_from: Literal["initial", "partner"] = Field(
        default="initial",
        description="where a center that has never merged begins: at the contract's initial trunk, "
        "or at the trunks of its first partners, which take the place of its own in that merge "
        "(`docs/members.md`)",
    )
    compare_alone: bool = Field(
        default=True, description="also train without partners, to tell what the federation gave"
    )
    record_stimuli: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="MiB of recorded stimuli that are kept for `abps replay`, the oldest make "
        "room; they hold partners' trunks; 0: none are recorded (`docs/audit.md`)",
    )
    log_level: LogLevel = Field(default="info", description="least level that is logged")
    local_step: LocalStep | None = Field(
        default=None,
        description="how several objectives move the trunk: pareto (no objective gets worse to "
        "first order), weighted (fixed preferences), plain (one objective); default: pareto with "
        "objectives, plain without (`docs/objectives.md`)",
    )
    private_features: PrivateFeatures = Field(
        default="always",
        description="whether heads see `[[private]]` from the first round on, or only in stage 2 "
        "and zeros before",
    )
    gradient_normalization: Normalization = Field(
        default="none",
        description="before the Pareto step weighs them: gradients as they are, all as long as "
        "their mean (unit), or divided by their loss (loss)",
    )
    stationarity: float | None = Field(
        default=None,
        ge=0,
        description="ends a local step early once ‖Σ μ*g‖² on the training split is at most this, "
        "tested after each epoch; default: no test",
    )
    objective: list[Objective] = Field(
        default_factory=list,
        max_length=MAX_OBJECTIVES,
        description="this center's own objectives; default: the contract's label alone",
    )
    private: list[Feature] = Field(
        default_factory=list,
        description="features that only this center has and only its own heads see",
    )
    stage2: Stage2 | None = Field(
        default=None, description="private fine-tuning at the end; default: none"
    )
    mqtt: BrokerTable | None = Field(
        default=None, description="this center at the broker; only with mqtt discovery"
    )
    metrics: MetricsTable | None = Field(
        default=None,
        description="numbers for a Prometheus server; default: none are served "
        "(`docs/operations.md`)",
    )
