"""The contract that all centers of a federation share, and its hash.

What must agree lives here: feature schema, model, training, policy, pacing, security, initial seed.
Roster, addresses and discovery are *not* part of it, so that admitting a hospital does not divide
the rest. Reading TOML files is the business of ``abps_node.config``.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from protocol import PROTOCOL_VERSION
from protocol.presets import PRESETS

CENTER_ID_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
CenterId = Annotated[str, Field(pattern=CENTER_ID_PATTERN)]
ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
FEDCARE_HEAD_LAYERS = 3
"""Linear layers of a head of FedCARE's model: two hidden ones and the output."""
_LATER_KEYS = (("model", "kind", "mlp"),)
"""Section, key and default of what the first contracts did not know."""
Goal = Literal["none", "homogeneity", "diversity", "alignment"]


class Strict(BaseModel):
    """Base of all configuration models: frozen, strict types, finite, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Feature(Strict):
    """One input column of the model."""

    name: ColumnName = Field(description="column of the table, exactly as written there")
    kind: Literal["continuous", "binary", "categorical"] = Field(
        description="continuous: a number; binary: 0/1, true/false or yes/no (or two `levels`, "
        "the second being 1); "
        "categorical: one of `levels`, one-hot encoded plus one column for «other»"
    )
    levels: list[str] | None = Field(
        default=None, description="categorical: the known levels; binary: [level of 0, level of 1]"
    )
    unit: str | None = Field(default=None, description="for people; never converted")
    missing_indicator: bool = Field(
        default=False, description="add a 0/1 column that says that the value was missing"
    )

    @model_validator(mode="after")
    def _levels_fit_kind(self) -> Self:
        if self.kind == "continuous" and self.levels is not None:
            raise ValueError("levels: a continuous feature has none")
        if self.kind == "categorical" and not self.levels:
            raise ValueError("levels: a categorical feature needs at least one level")
        if self.kind == "binary" and self.levels is not None and len(self.levels) != 2:
            raise ValueError("levels: a binary feature has exactly two, [level of 0, level of 1]")
        if self.levels is not None and len(set(self.levels)) != len(self.levels):
            raise ValueError("levels: each level may stand there once")
        return self


class Card(Strict):
    """What a center tells of itself before weights move: aggregates only (paper section 4.1)."""

    features: list[ColumnName] = Field(
        default_factory=list,
        max_length=253,  # with the three base components the longest card a message may carry
        description="binary columns whose prevalence the enriched card adds",
    )
    min_patients: int = Field(
        default=10, ge=1, description="a component over fewer patients is replaced by its default"
    )
    min_events: int = Field(
        default=5, ge=1, description="a rate with fewer events is replaced by its default"
    )
    default_positive_rate: float = Field(
        default=0.1, ge=0, le=1, description="stands in for a suppressed positive-class rate"
    )
    default_prevalence: float = Field(
        default=0.1, ge=0, le=1, description="stands in for a suppressed prevalence"
    )
    default_year: float = Field(
        default=2015.0, ge=1900, le=2300, description="stands in for a suppressed mean year"
    )


class Data(Strict):
    """The table that every center brings: columns, label, grouping."""

    label: ColumnName = Field(description="the outcome: a column of 0/1, true/false or yes/no")
    group: ColumnName | None = Field(
        default=None, description="patient column; all rows of a patient fall into one split"
    )
    date: ColumnName | None = Field(
        default=None, description="admission date or year; gives the card its mean year"
    )
    features: list[Feature] = Field(min_length=1, description="the inputs, in the model's order")
    split_seed: int = Field(
        default=0, ge=0, lt=2**63, description="seed of the 70/15/15 split, key of the group hash"
    )
    card: Card = Field(default=Card(), description="what the card tells, and what it suppresses")

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        names = [feature.name for feature in self.features]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"features: {name!r} stands there twice")
        for role in ("label", "group", "date"):
            column = getattr(self, role)
            if column is not None and column in names:
                raise ValueError(f"{role}: {column!r} is also a feature, which would leak it")
        binary = {feature.name for feature in self.features if feature.kind == "binary"}
        for name in self.card.features:
            if name not in binary:
                raise ValueError(f"card.features: {name!r} is not a binary feature of this schema")
        return self


class Model(Strict):
    """The network: the perceptron of section 6.3 of the paper, or the backbone of FedCARE."""

    kind: Literal["mlp", "fedcare"] = Field(
        default="mlp",
        description="mlp: linear layers; fedcare: two layers with batch norm and a residual, a "
        "linear one to the representation, layer norm; its heads are 64 → 32 → 1 and stay private "
        "(`docs/objectives.md`)",
    )
    hidden: list[Annotated[int, Field(ge=1, le=8192)]] = Field(
        default=[128, 64],
        min_length=1,
        max_length=8,
        description="widths of the hidden layers, input side first; fedcare: of its two layers, "
        "which are equal, and of the representation, 128, 128, 64 by default",
    )
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="after each hidden layer; fedcare: 0.3 by default"
    )
    init_seed: int = Field(default=1, ge=0, lt=2**63, description="all centers start identical")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_kind(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("kind") == "fedcare":
            return {"hidden": [128, 128, 64], "dropout": 0.3, **values}
        return values

    @model_validator(mode="after")
    def _widths_fit_kind(self) -> Self:
        if self.kind == "fedcare" and (len(self.hidden) != 3 or self.hidden[0] != self.hidden[1]):
            raise ValueError(
                f"hidden: found {self.hidden}, allowed: three widths, the first two equal, since "
                'kind is "fedcare"'
            )
        return self


class Training(Strict):
    """The local step (paper section 6.3)."""

    epochs: int = Field(default=2, ge=1, le=1000, description="passes over the own rows a round")
    batch_size: int = Field(default=128, ge=1, le=1_000_000, description="rows per step")
    learning_rate: float = Field(default=1e-3, gt=0, le=10, description="of Adam")
    weight_decay: float = Field(default=1e-5, ge=0, le=10, description="of Adam (L2)")


class Policy(Strict):
    """Who collaborates, when, and at what cost (paper section 4). All keys may be overridden."""

    preset: str | None = Field(
        default="abps",
        description="supplies defaults for the keys below; a key that is written out wins",
        json_schema_extra={"enum": list(PRESETS)},
    )
    rounds: int = Field(default=50, ge=1, le=1_000_000, description="rounds of each center")
    kappa: int = Field(default=3, ge=1, le=64, description="most partners in a round, κ")
    epsilon: float = Field(default=0.1, ge=0, description="exploration; constant c of a schedule")
    epsilon_schedule: Literal["constant", "c/sqrt(T)", "min(1,c/t)"] = Field(
        default="constant", description="how ε falls with the rounds (paper appendix C.2)"
    )
    gamma: float = Field(default=math.sqrt(2), ge=0, description="weight of the UCB bonus, γ")
    tau_acc: float = Field(default=0.5, description="least UCB for proposing and accepting")
    prior_alpha: float = Field(default=1.0, gt=0, description="α₀ of every belief")
    prior_beta: float = Field(default=1.0, gt=0, description="β₀ of every belief")
    goal: Goal = Field(default="none", description="a center may choose its own in center.toml")
    card: Literal["base", "enriched"] = Field(
        default="base", description="whether the goal filter sees `data.card.features` too"
    )
    tau_sim: float | None = Field(default=None, description="fixed threshold of the goal filter")
    keep_fraction: float | None = Field(
        default=None, gt=0, le=1, description="calibrates the filter's threshold instead"
    )
    keep: Literal["per-center", "pairs"] = Field(
        default="per-center",
        description="whether `keep_fraction` is of each center's peers or of all pairs of centers",
    )
    head_layers: int = Field(
        default=0, ge=0, description="linear layers that never leave: 0 none, 1 P, 2 ABPS-X"
    )
    wire_dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="how trunks travel; bfloat16 is Q of the paper"
    )
    merge_weights: Literal["uniform", "size"] = Field(
        default="uniform", description="plain mean of the trunks, or weighted by training patients"
    )
    size_cap: int = Field(
        default=10_000, ge=1, description="claimed sizes above it count as this many patients"
    )
    momentum: float | None = Field(default=None, ge=0, lt=1, description="β of ABPS-X")
    utility: Literal["auroc", "logloss"] = Field(
        default="auroc",
        description="what credit is measured in; with one class in the validation split AUROC "
        "gives way to 1 − Brier score",
    )
    phi_min: float = Field(default=-0.1, lt=0, description="clip of the credit, AUROC or Brier")
    phi_max: float = Field(default=0.1, gt=0, description="upper end of that clip")
    phi_min_logloss: float = Field(default=-0.05, lt=0, description="clip of the log-loss credit")
    phi_max_logloss: float = Field(default=0.05, gt=0, description="upper end of that clip")
    shapley_exact_max: int = Field(
        default=5, ge=0, le=12, description="up to this many partners all coalitions are measured"
    )
    shapley_permutations: int = Field(
        default=8, ge=1, le=10_000, description="…above it this many random orders are, B"
    )
    shapley_tolerance: float = Field(
        default=0.0, ge=0, description="truncation: marginals within it of U(P) count as zero"
    )
    patience: int | None = Field(
        default=None, ge=1, description="early stop: rounds without a better validation metric"
    )
    max_norm_ratio: float = Field(
        default=10.0,
        gt=1,
        description="a trunk whose norm is more than this many times, or less than this "
        "fraction of, the own trunk's is refused",
    )
    max_staleness: int | None = Field(
        default=None, ge=0, description="refuse trunks older than this many of the sender's rounds"
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        name = values.get("preset", "abps")
        # An unknown name is left to the check below, so that it hides no other problem.
        preset = dict(PRESETS.get(name, {})) if isinstance(name, str) else {}
        if values.get("tau_sim") is not None:
            # TOML has no null: a threshold written out must replace the preset's calibration.
            preset.pop("keep_fraction", None)
        return {**preset, **values}

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, name: str | None) -> str | None:
        if name is not None and name not in PRESETS:
            raise ValueError(f"preset: found {name!r}, allowed: {', '.join(PRESETS)}")
        return name

    @model_validator(mode="after")
    def _filter_is_unambiguous(self) -> Self:
        if self.tau_sim is not None and self.keep_fraction is not None:
            raise ValueError("tau_sim: give either tau_sim or keep_fraction, not both")
        return self

    @model_validator(mode="after")
    def _constant_epsilon_is_a_probability(self) -> Self:
        if self.epsilon_schedule == "constant" and self.epsilon > 1:
            raise ValueError(
                f"epsilon: found {self.epsilon:g}, allowed: 0 to 1 with the constant schedule"
            )
        return self


class Pacing(Strict):
    """The bounds in time and number; every timeout that is not here is derived from these."""

    min_peers: int = Field(default=1, ge=0, description="authenticated peers that round 1 awaits")
    start_wait_s: float = Field(default=60.0, ge=0, description="…at most this long")
    round_min_s: float = Field(default=1.0, ge=0, description="a round lasts at least this long")
    greet: Literal["all", "needed"] = Field(
        default="all",
        description="whom a center introduces itself to: everybody it can reach, or, in a "
        "federation of hundreds, only whom it proposes to (a goal filter needs all cards anyway)",
    )
    negotiation_s: float = Field(default=5.0, gt=0, description="all proposals of a round share it")
    exchange_s: float = Field(default=20.0, gt=0, description="one exchange of trunks, at most")
    linger_s: float = Field(
        default=30.0, gt=0, description="after the last round: a peer unseen this long is gone"
    )
    messages_per_s: float = Field(
        default=200.0, gt=0, description="token bucket per peer; a burst of twice as many passes"
    )


class Contract(Strict):
    """All that the centers of one federation agree on. Its hash travels in every handshake."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="of the federation, for people"
    )
    protocol_version: Literal[1] = Field(
        default=PROTOCOL_VERSION, description="of the messages between centers"
    )
    security: Literal["curve", "none"] = Field(
        default="curve", description="«none» sends everything in clear: for experiments only"
    )
    data: Data
    model: Model = Model()
    training: Training = Training()
    policy: Policy = Policy()
    pacing: Pacing = Pacing()

    @model_validator(mode="after")
    def _head_leaves_a_trunk(self) -> Self:
        if self.model.kind == "fedcare":
            if self.policy.head_layers != FEDCARE_HEAD_LAYERS:
                raise ValueError(
                    f"policy.head_layers: found {self.policy.head_layers}, allowed: "
                    f'{FEDCARE_HEAD_LAYERS}, the layers of a head, since model.kind is "fedcare"'
                )
            return self
        layers = len(self.model.hidden) + 1
        if self.policy.head_layers >= layers:
            raise ValueError(
                f"policy.head_layers: found {self.policy.head_layers}, allowed: at most "
                f"{layers - 1}, since the model has {layers} linear layers and one must be shared"
            )
        return self

    def digest(self) -> str:
        """SHA-256 (hex) over the canonical JSON of all values, the preset's name left out.

        Two files that resolve to the same values have the same hash, whichever preset they name. A
        key that came later is left out at its default, so that old contracts keep their hash.
        """
        values = self.model_dump(mode="json")
        values["policy"].pop("preset")
        for section, key, absent in _LATER_KEYS:
            if values[section][key] == absent:
                values[section].pop(key)
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()
