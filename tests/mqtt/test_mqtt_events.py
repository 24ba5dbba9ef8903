"""What a center tells dashboards: named fields only, bounded, never in anybody's way."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abps_node.discovery.mqtt_events import KINDS, EventQueue
from protocol.effects import CommitRound, Note
from protocol.record import RestCause
from tests.support.broker_events import CARD, COUNTS, FIELDS, assert_harmless
from tests.support.records import Chronicle


def queue(limit: int = 100) -> EventQueue:
    made = EventQueue("here", 5, lambda: None, limit)
    made.incarnation = 3
    return made


def drained(made: EventQueue) -> list[tuple[str, dict[str, Any]]]:
    """Kind and payload of all that waits, as it would be published."""
    events = [made.take() for _ in range(len(made))]
    return [(KINDS[type(event)], json.loads(event.model_dump_json())) for event in events]


def test_kinds_and_fields_are_these_and_no_others() -> None:
    """Whoever adds a field changes this list, and thinks of what it tells."""
    assert {kind: set(event.model_fields) for event, kind in KINDS.items()} == FIELDS


def test_round_with_partners() -> None:
    made = queue()
    made.committed(Chronicle().with_partners({"near": 0.02, "far": -0.1}, validation=0.712345))
    ((kind, told),) = drained(made)
    assert kind == "round"
    assert (told["center"], told["incarnation"], told["number"]) == ("here", 3, 1)
    assert (told["round"], told["partners"], told["rest"]) == (1, ["near", "far"], None)
    assert told["value"] == 0.712, "three decimals do not tell how many patients there are"
    assert_harmless("abps/event/here/round", json.dumps(told).encode(), {"here", "near", "far"})


def test_round_alone_tells_the_cause_and_counts_but_not_whom_it_does_not_trust() -> None:
    made = queue()
    made.committed(Chronicle().resting(RestCause.BELOW_THRESHOLD, "the highest was 0.43 (near)"))
    (isolation, told), (kind, summary) = drained(made)
    assert (isolation, kind) == ("isolation", "round")
    assert (told["cause"], told["intentional"]) == ("below-threshold", True)
    assert told["counts"] == {"known": 2, "after_filter": 2, "admissible": 0}
    assert (summary["rest"], summary["partners"]) == ("below-threshold", [])
    assert "0.43" not in json.dumps([told, summary])
    assert [told["number"], summary["number"]] == [1, 2]


def test_suspicion_and_refused_updates_without_their_texts() -> None:
    made = queue()
    made.note(Note("peer-suspect", "warning", "near", "SECRET text", {"x": "SECRET"}), 4)
    made.note(Note("peer-returned", "info", "near", "SECRET text"), 4)
    made.note(Note("trunk-refused", "warning", "far", "SECRET", {"reason": "trunk-norm"}), 5)
    told = drained(made)
    assert "SECRET" not in json.dumps(told)
    short = [
        (kind, one["round"], one["peer"], one.get("suspect"), one.get("reason"))
        for kind, one in told
    ]
    assert short == [
        ("suspect", 4, "near", True, None),
        ("suspect", 4, "near", False, None),
        ("rejected", 5, "far", None, "trunk-norm"),
    ]


@pytest.mark.parametrize("kind", ["peer-met", "misbehavior", "connection", "round", "broker-away"])
def test_other_notes_stay_at_home(kind: str) -> None:
    made = queue()
    made.note(Note(kind, "info", "near", "text"), 1)
    assert len(made) == 0


@pytest.mark.parametrize(("events", "rows"), [(4, 63), (59, 63), (0, 63), (63, 63)])
def test_utility_over_few_patients_is_not_told(events: int, rows: int) -> None:
    made = queue()
    commit = Chronicle().with_partners({"near": 0.1}, validation=0.7)
    counts = {"events": events, "rows": rows}
    validation = commit.record.validation.model_copy(update=counts)
    record = commit.record.model_copy(update={"validation": validation})
    made.committed(replace(commit, record=record))
    ((_, told),) = drained(made)
    assert told["value"] is None


def unfinite(commit: CommitRound) -> CommitRound:
    validation = commit.record.validation.model_copy(update={"value": math.nan})
    durations = {"total": math.inf}
    record = commit.record.model_copy(update={"validation": validation, "durations": durations})
    return replace(commit, record=record)


def test_numbers_that_json_does_not_know_are_null() -> None:
    made = queue()
    made.committed(unfinite(Chronicle().with_partners({"near": 0.1})))
    ((_, told),) = drained(made)
    assert (told["value"], told["seconds"]) == (None, None)


def test_the_oldest_make_room_and_are_counted() -> None:
    made = queue(limit=3)
    for number in range(1, 6):
        made.note(Note("peer-suspect", "warning", "near", ""), number)
    assert (len(made), made.take_dropped(), made.take_dropped()) == (3, 2, 0)
    first = made.take()
    assert (first.number, first.round) == (3, 3), "numbers tell of the gap"
    made.put_back(first)
    made.note(Note("peer-suspect", "warning", "near", ""), 6)
    assert made.take().number == 4
    made.note(Note("peer-suspect", "warning", "near", ""), 7)
    made.put_back(first)
    assert (len(made), made.take_dropped()) == (3, 2), "the put back one makes room, too"


def test_page_for_people_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text(encoding="utf-8")
    for kind, fields in FIELDS.items():
        for field in (kind, *fields, *CARD, *COUNTS):
            assert f"`{field}`" in page, field
