"""An invalid message cannot exist: every field of every message is checked on construction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import messages as m
from protocol.errors import MessageError
from tests.support.strategies import session_ids

SESSION = m.SessionId("icu-a", 3, "icu-b", 4, 17)
CARD = m.CardMessage(1, (0.5, 6.0))
HELLO = m.Hello(1, "icu-a", 1, "a" * 64, "b" * 64, CARD, False, True)
WEIGHTS = m.Weights(3, SESSION, 7, 0, 100, "float32", "c" * 64, b"1234")


@given(session_ids)
def test_a_session_id_is_its_text(session: m.SessionId) -> None:
    assert m.SessionId.parse(str(session)) == session
    assert hash(m.SessionId.parse(str(session))) == hash(session)
    assert session.peer_of(session.proposer) == session.acceptor
    assert session.proposer == session.acceptor or (
        session.peer_of(session.acceptor) == session.proposer
    )


@given(st.text(max_size=40) | st.from_regex(r"[a-z.#>/0-9-]{0,30}", fullmatch=True))
def test_any_text_is_a_session_id_or_refused(text: str) -> None:
    try:
        assert str(m.SessionId.parse(text)) == text
    except MessageError as error:
        assert error.reason == "bad-field"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a#1>b#1",
        "a#0>b#1/1",
        "a#01>b#1/1",
        "a#1>b#1/0",
        "a#1>b#1/9007199254740993",
        "a#1>b#1/11111111111111111",
        "A#1>b#1/1",
        "-a#1>b#1/1",
        "a#1>b#1/1 ",
        "a#\u0661>b#1/1",
        "x" * 221,
        b"a#1>b#1/1",
        None,
        1,
    ],
)
def test_what_is_no_session_id_is_refused(text: object) -> None:
    with pytest.raises(MessageError, match="session"):
        m.SessionId.parse(text)


def bad(field: str, *values: object, of: Any) -> list[Any]:
    name = type(of).__name__
    return [pytest.param(of, field, v, id=f"{name}.{field}={v!r:.20}") for v in values]


NOT_COUNTS = (-1, 1.0, "1", True, None, 2**53 + 1)
NOT_FLAGS = (0, 1, None, "true")
NOT_DIGESTS = ("", "a" * 63, "a" * 65, "A" * 64, "g" * 64, b"a" * 64, None)
NOT_IDS = ("", "A", "-a", ".a", "a b", "ä", "a" * 64, b"a", None, 1)


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        *bad("incarnation", 0, *NOT_COUNTS, of=m.Ping(1)),
        *bad("incarnation", 0, *NOT_COUNTS, of=m.Pong(1)),
        *bad("center", *NOT_IDS, of=HELLO),
        *bad("protocol_version", -1, 2**31 + 1, True, of=HELLO),
        *bad("contract", *NOT_DIGESTS, of=HELLO),
        *bad("initial_trunk", *NOT_DIGESTS, of=HELLO),
        *bad("card", (1, (0.5,)), None, of=HELLO),
        *bad("finished", *NOT_FLAGS, of=HELLO),
        *bad("reply", *NOT_FLAGS, of=HELLO),
        *bad("sequence", 0, *NOT_COUNTS, of=CARD),
        *bad("values", (), (1,), (math.nan,), (-math.inf,), (1.1e6,), [0.5], of=CARD),
        *bad("values", (0.5,) * 257, of=CARD),
        *bad("reason", "contract", m.Reject.BUSY, of=m.Refuse(1, m.RefuseReason.CONTRACT, "", 0)),
        *bad("detail", "x" * 501, b"", of=m.Refuse(1, m.RefuseReason.CONTRACT, "", 0)),
        *bad("known_incarnation", *NOT_COUNTS, of=m.Refuse(1, m.RefuseReason.CONTRACT, "", 0)),
        *bad("session", str(SESSION), None, of=m.Withdraw(1, SESSION)),
        *bad("round", 0, *NOT_COUNTS, of=m.Propose(1, SESSION, 1)),
        *bad("round", 0, *NOT_COUNTS, of=m.Accept(1, SESSION, 1)),
        *bad("reason", "busy", None, of=m.Rejected(1, SESSION, m.Reject.BUSY)),
        *bad("round", 0, *NOT_COUNTS, of=WEIGHTS),
        *bad("staleness", *NOT_COUNTS, of=WEIGHTS),
        *bad("size", 0, *NOT_COUNTS, of=WEIGHTS),
        *bad("dtype", "float16", "", None, of=WEIGHTS),
        *bad("layout", *NOT_DIGESTS, of=WEIGHTS),
        *bad("payload", "1234", bytearray(4), None, of=WEIGHTS),
        *bad("verified", *NOT_FLAGS, of=m.Done(1, SESSION, True, "")),
        *bad("reason", "x" * 201, None, of=m.Done(1, SESSION, True, "")),
        *bad("merged", (), ((SESSION,),), ((SESSION, 1),), of=m.Settle(1, ((SESSION, True),))),
        *bad("merged", [(SESSION, True)], of=m.Settle(1, ((SESSION, True),))),
        *bad("merged", ((str(SESSION), True),), of=m.Settle(1, ((SESSION, True),))),
        *bad("merged", ((SESSION, True),) * 257, of=m.Settle(1, ((SESSION, True),))),
        *bad("sessions", (), (str(SESSION),), [SESSION], of=m.Reconcile(1, (SESSION,))),
        *bad("sessions", (SESSION,) * 257, of=m.Reconcile(1, (SESSION,))),
        *bad("finished", *NOT_FLAGS, of=m.Goodbye(1, True, False)),
        *bad("settled", *NOT_FLAGS, of=m.Goodbye(1, True, False)),
        *bad("left", *NOT_FLAGS, of=m.Goodbye(1, True, False)),
        *bad("proposer", *NOT_IDS, of=SESSION),
        *bad("acceptor", *NOT_IDS, of=SESSION),
        *bad("proposer_incarnation", 0, *NOT_COUNTS, of=SESSION),
        *bad("acceptor_incarnation", 0, *NOT_COUNTS, of=SESSION),
        *bad("number", 0, *NOT_COUNTS, of=SESSION),
    ],
)
def test_a_bad_field_is_refused_by_name(message: Any, field: str, value: object) -> None:
    with pytest.raises(MessageError) as caught:
        dataclasses.replace(message, **{field: value})
    assert caught.value.reason == "bad-field"
    assert field in caught.value.detail
    assert "found" in caught.value.detail and "allowed" in caught.value.detail
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        *bad("center", "icu-a\n", of=HELLO),
        *bad("contract", "a" * 64 + "\n", of=HELLO),
        *bad("proposer", "icu-a\n", of=SESSION),
    ],
)
def test_a_final_newline_is_part_of_the_value(message: Any, field: str, value: object) -> None:
    with pytest.raises(MessageError):
        dataclasses.replace(message, **{field: value})


def test_every_kind_stands_under_its_own_name() -> None:
    def concrete(cls: type[m.Message]) -> set[type[m.Message]]:
        below = cls.__subclasses__()
        return set().union(*map(concrete, below)) if below else {cls}

    assert set(m.MESSAGE_KINDS.values()) == concrete(m.Message)
    assert all(kind == cls.kind for kind, cls in m.MESSAGE_KINDS.items())


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.Ping(1).incarnation = 2  # type: ignore[misc]
