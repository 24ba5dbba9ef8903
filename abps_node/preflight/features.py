"""Warnings about the features of a table, common or private: cells that stand for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from abps_node.cli.human import count
from abps_node.data import UnknownLevels
from abps_node.preflight.columns import near_spelling
from abps_node.preflight.finding import Finding, ok, warning
from protocol.contract import Feature

MISSING_WORTH_A_WARNING: Final = 0.5
"""Share of rows without a value above which a column is pointed out."""
_NAMES_SHOWN: Final = 8


def check_levels(
    features: Sequence[Feature],
    rows: int,
    missing: Mapping[str, int],
    unknown: Mapping[str, UnknownLevels],
    declare: str = "agree on these levels in the contract",
) -> Iterator[Finding]:
    """Levels that a feature does not declare; ``declare`` says what would mend that."""
    declared = {feature.name: feature.levels or [] for feature in features}
    for column, found in unknown.items():
        near = {text: near_spelling(text, declared[column]) for text in found.examples}
        meant = [f'"{text}" is perhaps "{level}"' for text, level in near.items() if level]
        known = rows - missing[column] - found.rows
        none = (
            f"; no row has one of those declared, {listed(declared[column])}" if not known else ""
        )
        examples = ", ".join(f'"{level}" ({many})' for level, many in found.examples.items())
        many, undeclared = count(found.rows, "row"), count(found.levels, "undeclared level")
        counts = "counts" if found.rows == 1 else "count"
        yield warning(
            "levels",
            f"{column}: {many} with {undeclared} {counts} as «other»: {examples}{none}",
            "; ".join([*meant, f"correct the spelling, or {declare}"]),
        )


def check_missing(
    rows: int, missing: Mapping[str, int], what: str = "missing"
) -> Iterator[Finding]:
    """Features with missing values; ``what`` names the check."""
    shares = {name: many / rows for name, many in missing.items() if many}
    most = {name: share for name, share in shares.items() if share > MISSING_WORTH_A_WARNING}
    for name, share in most.items():
        yield warning(
            what,
            f"{name}: no value in {share:.0%} of the rows; the rest stands in for them",
            "check the export of this column",
        )
    few = [f"{name} ({share:.1%})" for name, share in shares.items() if name not in most]
    other = "no other missing values" if most else "no missing values"
    yield ok(what, f"missing values in {listed(few)}" if few else other)


def listed(names: list[str] | tuple[str, ...]) -> str:
    """The first of them, and how many more."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
