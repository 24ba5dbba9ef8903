"""What one center wants beyond the contract: objectives of its own, and features only it has.

The tables of center.toml as pydantic models, and ``Aims``, what they come to. None of it leaves the
center: partners see trunks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from abps_node.config_text import shown
from protocol.contract import ColumnName, Contract, Feature, Strict

Kind = Literal["bce", "sensitivity", "fairness", "huber-log"]
LocalStep = Literal["plain", "weighted", "pareto"]
PrivateFeatures = Literal["always", "stage2"]
Normalization = Literal["none", "unit", "loss"]
MAX_OBJECTIVES: Final = 8
_ONLY_FOR: Final = {
    "class_weight": ("bce", "sensitivity", "fairness"),
    "false_negative_cost": ("sensitivity",),
    "group": ("fairness",),
    "gap_weight": ("fairness",),
    "huber_delta": ("huber-log",),
}
Name = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$",
        json_schema_extra={
            "allowed": "1 to 32 of the characters a-z 0-9 _ -, the first a letter or digit"
        },
    ),
]


class Objective(Strict):
    """One thing that this center wants its model to do well. Each has a head of its own."""

    name: Name = Field(description="for people; unique in this file")
    kind: Kind = Field(
        description="bce: binary cross-entropy of a 0/1 column; sensitivity: the same with a cost "
        "on false negatives; fairness: the same plus the gap in true-positive rate between groups; "
        "huber-log: a duration in days, Huber loss on log1p"
    )
    column: ColumnName = Field(
        description="column of the table; a missing value leaves the row out of this objective only"
    )
    weight: float = Field(
        default=1.0, gt=0, description='preference in `local_step = "weighted"`, relative'
    )
    credit_weight: float = Field(
        default=1.0, ge=0, description="weight in the utility that credit is measured in, relative"
    )
    class_weight: Literal["balanced", "none"] = Field(
        default="balanced",
        description="balanced: both classes weigh the same in the loss (all kinds but huber-log)",
    )
    false_negative_cost: float = Field(
        default=5.0, ge=1, le=1000, description="factor on the loss of label 1 (sensitivity only)"
    )
    group: ColumnName | None = Field(
        default=None, description="column whose groups are compared (fairness only, and needed)"
    )
    gap_weight: float = Field(
        default=1.0, gt=0, le=1000, description="factor on the gap's loss (fairness only)"
    )
    huber_delta: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="error, in log1p days, where the loss becomes linear (huber-log only)",
    )

    @property
    def binary(self) -> bool:
        """Whether the column holds 0 and 1; else it holds days."""
        return self.kind != "huber-log"

    @model_validator(mode="after")
    def _keys_fit_kind(self) -> Self:
        for key, kinds in _ONLY_FOR.items():
            if key in self.model_fields_set and self.kind not in kinds:
                found = shown(getattr(self, key))
                raise ValueError(
                    f'{key}: found {found}, allowed: nothing, since kind is "{self.kind}"'
                )
        if self.kind == "fairness" and self.group is None:
            raise ValueError('group: missing, allowed: a column, since kind is "fairness"')
        return self


class Stage2(Strict):
    """Private fine-tuning after the federation has ended; nothing is sent any more."""

    epochs: int = Field(
        default=20, ge=1, le=10_000, description="passes over the own rows, at most"
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=10, description="of Adam")
    stationarity: float = Field(
        default=1e-6, ge=0, description="ends it earlier: ‖Σ μ*g‖² on the training split, ε"
    )


@dataclass(frozen=True)
class Aims:
    """A center's own objectives, resolved: at least one."""

    objectives: tuple[Objective, ...]
    private: tuple[Feature, ...] = ()
    local_step: LocalStep = "pareto"
    private_features: PrivateFeatures = "always"
    normalization: Normalization = "none"
    stationarity: float | None = None
    """ε of the test after each epoch; None is no test."""
    stage2: Stage2 | None = None

    @property
    def preferences(self) -> tuple[float, ...]:
        """The fixed weights of the weighted step, with sum 1."""
        total = sum(objective.weight for objective in self.objectives)
        return tuple(objective.weight / total for objective in self.objectives)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that are read beyond the contract's, each once."""
        names = [feature.name for feature in self.private]
        for objective in self.objectives:
            names += [objective.column, *([objective.group] if objective.group else [])]
        return tuple(dict.fromkeys(names))

    def keys_of(self, column: str) -> tuple[str, ...]:
        """The keys of center.toml that name a column."""
        keys = [f"private[{each.name}].name" for each in self.private if each.name == column]
        for each in self.objectives:
            named = {"column": each.column, "group": each.group}
            keys += [f"objective[{each.name}].{key}" for key in named if named[key] == column]
        return tuple(keys)


def label_alone(contract: Contract) -> Objective:
    """What a center without objectives of its own learns: the contract's label, as the paper."""
    return Objective(name="label", kind="bce", column=contract.data.label, class_weight="none")


def aims_problems(contract: Contract, aims: Aims) -> list[str]:
    """Why these aims do not go with the contract, one line per problem, each with its key."""
    return [*_model_problems(contract, aims), *_column_problems(contract, aims)]


def _model_problems(contract: Contract, aims: Aims) -> list[str]:
    problems = []
    if contract.policy.head_layers == 0:
        problems.append(
            "objective: found objectives or private features, allowed: none, since "
            "contract.policy.head_layers is 0 and no layer stays private"
        )
    if contract.policy.utility != "auroc":
        problems.append(
            f'contract.policy.utility: found "{contract.policy.utility}", allowed: auroc, since '
            "with objectives, private features or FedCARE's trunk U is a mean of AUROC"
        )
    if aims.local_step == "plain" and len(aims.objectives) > 1:
        problems.append(
            f'local_step: found "plain", allowed: pareto or weighted with {len(aims.objectives)} '
            "objectives"
        )
    if aims.normalization != "none" and aims.local_step != "pareto":
        problems.append(
            f'gradient_normalization: found "{aims.normalization}", allowed: none, since '
            f'local_step is "{aims.local_step}"'
        )
    if not any(objective.credit_weight for objective in aims.objectives):
        problems.append("objective: found credit_weight 0 in all, allowed: one above 0 at least")
    if aims.private_features == "stage2" and aims.stage2 is None:
        problems.append(
            'private_features: found "stage2", allowed: always, since there is no [stage2]'
        )
    return problems


def _column_problems(contract: Contract, aims: Aims) -> list[str]:
    data = contract.data
    common = {feature.name for feature in data.features}
    roles = {name for name in (data.label, data.group, data.date) if name is not None}
    outcomes = {objective.column for objective in aims.objectives}
    private = [feature.name for feature in aims.private]
    problems = []
    for name in dict.fromkeys(private):
        key = f"private[{name}].name"
        if private.count(name) > 1:
            problems.append(f"{key}: found {private.count(name)} times, allowed: once")
        if name in common:
            problems.append(
                f"{key}: found a common feature of the contract, allowed: a column that is none"
            )
        if name in outcomes | roles:
            problems.append(
                f"{key}: found the column of an objective or of the contract's label, group or "
                "date, allowed: another one, since it would leak the outcome"
            )
    names = [objective.name for objective in aims.objectives]
    for objective in aims.objectives:
        key = f"objective[{objective.name}]"
        if objective.column in common:
            problems.append(
                f"{key}.column: found {shown(objective.column)}, a feature of the contract, "
                "allowed: a column that is no input"
            )
        if names.count(objective.name) > 1:
            times = names.count(objective.name)
            problems.append(f"{key}.name: found {times} times, allowed: once")
    return list(dict.fromkeys(problems))
