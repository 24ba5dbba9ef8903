"""One valid message of each kind."""

from __future__ import annotations

from protocol import messages as m

SESSION = m.SessionId("icu-a", 3, "icu-b", 4, 17)
SAMPLES: list[m.Message] = [
    m.Hello(1, "icu-a", 1, "a" * 64, "b" * 64, m.CardMessage(1, (0.5, 6.0, 0.99)), False, True),
    m.Refuse(1, m.RefuseReason.CONTRACT, "other schema", 0),
    m.Propose(3, SESSION, 7),
    m.Accept(4, SESSION, 9),
    m.Rejected(4, SESSION, m.Reject.BUSY),
    m.Withdraw(3, SESSION),
    m.Weights(3, SESSION, 7, 0, 100, "float32", "c" * 64, bytes(range(64))),
    m.Done(4, SESSION, False, "trunk-norm"),
    m.Settle(4, ((SESSION, True),)),
    m.Reconcile(3, (SESSION,)),
    m.Ping(1),
    m.Pong(1),
    m.Goodbye(1, True, False, left=True),
]
