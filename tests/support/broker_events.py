"""What may pass through a broker: the fields of each kind, and words from fixed lists only."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any, Final

from protocol.record import RestCause

_COMMON: Final = {"version", "center", "incarnation", "number", "time", "round"}
FIELDS: Final = {
    "round": _COMMON
    | {
        "partners",
        "rest",
        "metric",
        "value",
        "best_round",
        "seconds",
        "bytes_sent",
        "bytes_received",
        "finished",
    },
    "isolation": _COMMON | {"cause", "intentional", "counts"},
    "suspect": _COMMON | {"peer", "suspect"},
    "rejected": _COMMON | {"peer", "reason"},
}
COUNTS: Final = {
    "known",
    "unavailable",
    "finished",
    "refused",
    "before_filter",
    "after_filter",
    "admissible",
    "attempts",
}
CARD: Final = {"version", "id", "public_key", "address", "incarnation", "state"}
REASONS: Final = {
    "stale",
    "trunk-dtype",
    "trunk-layout",
    "trunk-length",
    "trunk-norm",
    "trunk-not-finite",
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_MAX_BYTES: Final = 2000


def assert_harmless(topic: str, payload: bytes, centers: Set[str]) -> None:
    """Fail for anything that is not on these lists; an empty payload clears a card."""
    prefix, kind, center, *rest = topic.split("/")
    assert prefix == "abps" and center in centers and len(payload) <= _MAX_BYTES
    if kind == "card":
        assert rest == []
        assert not payload or set(json.loads(payload)) == CARD
        return
    assert kind == "event" and len(rest) == 1
    told: dict[str, Any] = json.loads(payload)
    assert set(told) == FIELDS[rest[0]]
    assert _TIME.fullmatch(told["time"])
    assert set(told.get("counts", {})) <= COUNTS
    words = {*centers, *RestCause, *REASONS, "auroc", "brier", "logloss", told["time"]}
    assert set(_texts(list(told.values()))) <= words
    if told.get("value") is not None:
        assert round(told["value"], 3) == told["value"]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    entries = value.values() if isinstance(value, dict) else value
    return (
        [text for one in entries for text in _texts(one)] if isinstance(value, list | dict) else []
    )
