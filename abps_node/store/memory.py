"""What a state left behind, in the words of ``protocol``."""

from __future__ import annotations

from abps_node.store.store import Recovered
from protocol.center import Memory


def memory_of(recovered: Recovered) -> Memory:
    """For the next start of the center."""
    metric = recovered.best_metric
    return Memory(
        last_round=recovered.last_round,
        beliefs=recovered.beliefs,
        sessions=recovered.sessions,
        merged=recovered.merged,
        best_round=recovered.best_round,
        best_metric=float("-inf") if metric is None else metric,
        rounds_without_gain=recovered.rounds_without_gain,
        finished=recovered.finished,
    )
