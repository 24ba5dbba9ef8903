"""The aggregates that a center tells of itself, counted on its training split.

Rows are counted, also where several belong to one patient. Which components are told, and what
stands in for those over too few patients, is decided by ``protocol.goal``.
"""

from __future__ import annotations

import numpy as np

from abps_node.data.patients import Patients
from abps_node.data.split import Rows
from protocol.contract import Contract
from protocol.goal import CardCounts


def card_counts(contract: Contract, patients: Patients, train: Rows) -> CardCounts:
    """Counts behind the card vector (paper section 4.1); missing values are in no count."""
    years = patients.years
    dated = np.empty(0) if years is None else years[train][~np.isnan(years[train])]
    raw = patients.features
    told = raw.values[[raw.names.index(name) for name in contract.data.card.features]][:, train]
    events, known = np.nansum(told, axis=1), (~np.isnan(told)).sum(axis=1)
    return CardCounts(
        patients=int(train.size),
        positives=int(patients.labels[train].sum()),
        mean_year=float(dated.mean()) if dated.size else None,
        dated=int(dated.size),
        prevalence=tuple(zip(map(int, events), map(int, known), strict=True)),
    )
