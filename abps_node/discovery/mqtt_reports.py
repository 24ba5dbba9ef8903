"""What people are told of the broker: each trouble once, and its end."""

from __future__ import annotations

from typing import Final

from abps_node.config import Broker
from abps_node.discovery.base import Say
from abps_node.discovery.broker import BrokerTrouble, Trouble
from protocol.effects import Note

_KINDS: Final[dict[Trouble, str]] = {"away": "broker-away", "refused": "broker-refuses"}


class BrokerReports:
    """Notes for the log and the events of the center."""

    def __init__(self, broker: Broker, say: Say) -> None:
        self._broker = str(broker)
        self._say = say
        self._said: set[Trouble] = set()
        self._denied = False

    def met(self, dropped: int) -> None:
        """The broker answers; ``dropped`` events did not wait for it."""
        self._said.clear()
        lost = f"; {dropped} events were dropped meanwhile" if dropped else ""
        self._tell("broker-met", "info", f"{self._broker} answers{lost}", dropped=dropped)

    def trouble(self, trouble: BrokerTrouble, known: int) -> None:
        """Once per outage and kind; ``known`` peers can be reached without the broker."""
        if trouble.kind in self._said:
            return
        self._said.add(trouble.kind)
        text = f"{trouble}; the federation goes on with the addresses it knows ({known})"
        fix = f"; {trouble.fix}" if trouble.fix else ""
        self._tell(_KINDS[trouble.kind], "warning", f"{text}{fix}", reason=trouble.kind)

    def denied(self, topic: str) -> None:
        """Once; a publication against the access rules gets no error, it just does not arrive."""
        if not self._denied:
            self._denied = True
            text = f"{topic} does not come back, the broker's access rules seem to deny it"
            self._tell("broker-denies", "warning", f"{self._broker}: {text}", topic=topic)

    def insecure(self) -> None:
        """Said at the start of a center whose broker is spoken to in clear."""
        text = f"{self._broker}: without TLS the password and all else go in clear"
        self._tell("insecure", "warning", text)

    def _tell(self, kind: str, level: str, text: str, **data: object) -> None:
        self._say(Note(kind, level, None, text, {"broker": self._broker, **data}))
