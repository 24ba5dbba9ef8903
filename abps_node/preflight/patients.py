"""Checks of the patient table: what the contract makes of it, before anything is trained.

The findings name columns, counts and single undeclared levels; they stay at the center.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from abps_node.cli.human import count
from abps_node.config import CenterConfig
from abps_node.data import CenterData, DataReport, SplitCounts, load_with_patients
from abps_node.errors import StoreError
from abps_node.preflight.columns import check_columns
from abps_node.preflight.features import check_levels, check_missing, listed
from abps_node.preflight.finding import Finding, ok, problem, warning
from abps_node.preflight.objectives import check_objectives, check_own_columns, check_private
from abps_node.preflight.values import check_values
from abps_node.store.patients import require_same
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from protocol.contract import Contract
from protocol.goal import card_names


def check_patients(config: CenterConfig) -> Iterator[Finding]:
    """All findings about the table; raises ``DataError`` if it cannot be read at all."""
    contract = config.federation.contract
    misfits = check_columns(contract.data, config.data)
    if config.aims is not None:
        misfits += check_own_columns(config.aims, config.data)
    if misfits:
        yield from misfits
        yield warning("data", "the rest of the table was not looked at", "first mend the columns")
        return
    data, patients = load_with_patients(contract, config.id, config.data, config.aims)
    report = data.report
    yield _table(report)
    features = contract.data.features
    yield from check_levels(features, report.rows, report.missing, report.unknown_levels)
    yield from check_values(features, patients.features)
    yield from check_missing(report.rows, report.missing)
    yield from _constant(report)
    yield from _dates(report)
    yield from _classes(report)
    if config.aims is None or data.objectives is None:
        yield _utility(contract, report)
    else:
        yield from check_objectives(config.aims, data.objectives)
        yield from check_private(config.aims, config.data)
    yield _batches(contract, report)
    yield _card(contract, data)
    yield from _same_as_before(config, data)


def _same_as_before(config: CenterConfig, data: CenterData) -> Iterator[Finding]:
    """Whether a state that is there was begun with this very table."""
    if data.fingerprint is None or not (config.state_dir / STATE_FILE).exists():
        return
    try:
        reader = Reader(config.state_dir)
        stored = reader.patients()
    except StoreError:
        return  # the check of the state says what is wrong with it
    if stored is None:
        return
    try:
        require_same(reader.path, stored, data.fingerprint)
    except StoreError as error:
        text, _, fix = str(error).rpartition("; ")
        yield problem("data", text, fix)
        return
    yield ok("data", "the table is the one that the state was begun with")


def _table(report: DataReport) -> Finding:
    text = f"{count(report.rows, 'row')}, {report.positives} with label 1"
    text += f", {count(report.inputs, 'model input')}"
    if report.groups is not None:
        text += f", {count(report.groups, 'patient')}"
    if report.ignored:
        text += f"; not used: {listed(report.ignored)}"
    return ok("data", text)


def _constant(report: DataReport) -> Iterator[Finding]:
    if report.constant:
        yield warning(
            "constant",
            f"one and the same value in all training rows: {listed(report.constant)}",
            "check the export of these columns; the model cannot learn from them here",
        )


def _dates(report: DataReport) -> Iterator[Finding]:
    if report.dated is not None and report.dated < report.rows:
        yield warning(
            "dates",
            f"{report.rows - report.dated} of {report.rows} rows have no date",
            "fill the date column; the card's mean year is that of the other rows",
        )


def _classes(report: DataReport) -> Iterator[Finding]:
    splits = {"train": report.train, "validation": report.validation, "test": report.test}
    meaning = {
        "train": "the model sees one outcome only",
        "validation": "credit cannot be measured by AUROC",
        "test": "the test AUROC will be undefined",
    }
    counts = ", ".join(f"{name} {_counts(split)}" for name, split in splits.items())
    yield ok("classes", f"rows (label 1): {counts}")
    for name, split in splits.items():
        if not _both_classes(split):
            yield warning(
                "classes",
                f"{name}: {_counts(split)}: one class; {meaning[name]}",
                "bring more patients, or check the label column",
            )


def _utility(contract: Contract, report: DataReport) -> Finding:
    split, policy = report.validation, contract.policy
    if policy.utility != "auroc":
        return ok("credit", f"measured in {policy.utility} on {split.rows} validation rows")
    if not _both_classes(split):
        return warning(
            "credit",
            f"{split.rows} validation rows of one class: credit is 1 − Brier score, not AUROC",
            'bring more patients, or agree on utility = "logloss"',
        )
    step = 1 / (split.positives * (split.rows - split.positives))
    if step > policy.phi_max:
        return warning(
            "credit",
            f"{_counts(split)} validation rows: one step of AUROC is {step:.2f}, more than the "
            f"clip of {policy.phi_max:g}, so credit knows better or worse only",
            'bring more patients, or agree on utility = "logloss"',
        )
    return ok("credit", f"AUROC on {_counts(split)} validation rows, steps of {step:.2g}")


def _batches(contract: Contract, report: DataReport) -> Finding:
    training = contract.training
    batches = math.ceil(report.train.rows / training.batch_size)
    times = "once" if training.epochs == 1 else f"{training.epochs} times"
    return ok(
        "batches",
        f"{count(report.train.rows, 'training row')}: {count(batches, 'step')} of up to "
        f"{training.batch_size} rows, {times} a round",
    )


def _card(contract: Contract, data: CenterData) -> Finding:
    parts = zip(card_names(contract), data.card, strict=True)
    told = ", ".join(f"{name} {value:.4g}" for name, value in parts)
    return ok("card", f"the other centers learn: {told}")


def _both_classes(split: SplitCounts) -> bool:
    return 0 < split.positives < split.rows


def _counts(split: SplitCounts) -> str:
    return f"{split.rows} ({split.positives})"
