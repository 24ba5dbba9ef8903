"""One valid frame of each message kind, to begin with: ``python -m tests.fuzz.seeds FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from protocol import codec
from protocol import messages as m

_SESSION = m.SessionId("icu-a", 3, "icu-b", 4, 17)
MESSAGES: list[m.Message] = [
    m.Hello(1, "icu-a", 1, "a" * 64, "b" * 64, m.CardMessage(1, (0.5, 6.0)), False, True),
    m.Refuse(1, m.RefuseReason.CONTRACT, "other schema", 0),
    m.Propose(3, _SESSION, 7),
    m.Accept(4, _SESSION, 9),
    m.Rejected(4, _SESSION, m.Reject.BUSY),
    m.Withdraw(3, _SESSION),
    m.Weights(3, _SESSION, 7, 0, 100, "float32", "c" * 64, bytes(range(64))),
    m.Done(4, _SESSION, False, "trunk-norm"),
    m.Settle(4, ((_SESSION, True),)),
    m.Reconcile(3, (_SESSION,)),
    m.Ping(1),
    m.Pong(1),
    m.Goodbye(1, True, False),
]


def main() -> None:
    """Write the frames."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for message in MESSAGES:
        (folder / message.kind).write_bytes(codec.encode(message))


if __name__ == "__main__":
    main()
