"""The daemons' state machine in the simulator's schedule: everybody in step, one at a time.

In a real network centers train, propose and merge whenever they are ready. Here a round is three
steps for all: every center runs its local step; then, in the simulator's seeded order, each center
goes down its list until its slots are full or the list ends; then all merge. Nothing is lost and
nothing takes time. So the decisions of ``protocol.node`` can be compared with those of
``sim.methods.abps``, one for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from protocol import codec
from protocol.center import Hold, Identity, Memory
from protocol.contract import Contract
from protocol.credit import Coalition
from protocol.effects import CommitRound, Effect, Exit, Merge, Send, Train
from protocol.events import Event, Heard, Merged, ModelRef, Reachable, Sent, Started, Tick, Trained
from protocol.node import Node
from protocol.randomness import derive_rng
from protocol.record import RoundRecord, ValidationRecord
from protocol.trunk import Vector

TICK_S = 0.1
STEP_S = 0.0001
"""Virtual time between two stimuli: no token bucket runs dry, no timeout strikes."""


class Learning(Protocol):
    """What a center's learning gives, as ``abps_node.learning.Learner`` does."""

    def train(self, round: int) -> Vector:
        """The trunk after the local step of a round."""

    def merge(
        self,
        round: int,
        trunks: Mapping[str, Vector],
        weights: Mapping[str, float],
        coalitions: Sequence[Coalition],
    ) -> tuple[dict[Coalition, float], ValidationRecord]:
        """Utilities of the coalitions, and the validation record after the merge."""


class Lockstep:
    """A federation that goes on round by round."""

    def __init__(
        self,
        contract: Contract,
        identities: Sequence[Identity],
        learning: Mapping[str, Learning],
        seed: int,
    ) -> None:
        """``seed`` is that of the order in which centers propose. The contract must let round 1
        wait for everybody: ``pacing.min_peers`` = number of centers − 1.
        """
        self._contract = contract
        self._learning = learning
        self._seed = seed
        self._now = 0.0
        names = sorted(identity.center for identity in identities)
        self._layout = identities[0].layout
        self.nodes = {
            each.center: Node(contract, each, names, Memory())
            for each in sorted(identities, key=lambda each: each.center)
        }
        self.commits: dict[str, list[CommitRound]] = {name: [] for name in names}
        self.exits: dict[str, Exit] = {}
        self._train: dict[str, int] = {}
        self._merge: dict[str, Merge] = {}
        self._mail: deque[tuple[str, str, bytes]] = deque()
        self._meet()

    def round(self, t: int) -> dict[str, RoundRecord]:
        """Run round ``t`` of every center that has not finished; returns their records."""
        active = [name for name, number in sorted(self._train.items()) if number == t]
        trained = {name: self._learning[name].train(t) for name in active}
        for name in active:
            self._finish_training(name, t, trained[name])
        order = list(active)
        derive_rng(self._seed, t, "order").shuffle(order)
        for name in order:
            self._let(name, Hold.MERGE)
        for name in active:
            self._let(name, Hold.NOTHING)
        # With a slot free a center waits for others until the round's least time is over.
        self._pass_time(active, self._contract.pacing.round_min_s)
        for name in active:
            self._answer_merge(name)
        self._deliver_all()
        return {name: self.commits[name][-1].record for name in active}

    def _meet(self) -> None:
        for name in self.nodes:
            self._feed(name, Started())
            for peer in self.nodes:
                if peer != name:
                    self._feed(name, Reachable(peer))
        # A center greets at its next tick.
        self._pass_time(list(self.nodes), TICK_S)

    def _finish_training(self, name: str, t: int, trunk: Vector) -> None:
        """The local step ends for all before anybody proposes."""
        del self._train[name]
        self.nodes[name].center.hold = Hold.PROPOSALS
        self._feed(name, Trained(t, trunk, loss=0.0, seconds=0.0))

    def _let(self, name: str, hold: Hold) -> None:
        """One center goes on, until nobody has anything to say any more."""
        self.nodes[name].center.hold = hold
        self._feed(name, Tick())
        self._deliver_all()

    def _pass_time(self, names: Sequence[str], seconds: float) -> None:
        """Tick by tick: a center that misses ticks takes the time that passed for its own lag."""
        until = self._now + seconds
        while self._now <= until:
            self._now += TICK_S
            for name in names:
                self._feed(name, Tick())
            self._deliver_all()

    def _answer_merge(self, name: str) -> None:
        asked = self._merge.pop(name)
        learning = self._learning[name]
        utilities, validation = learning.merge(
            asked.round, asked.trunks, asked.weights, asked.coalitions
        )
        model = ModelRef(f"round-{asked.round:06d}", "0" * 64)
        self._feed(name, Merged(asked.round, utilities, validation, model, seconds=0.0))

    def _deliver_all(self) -> None:
        while self._mail:
            sender, receiver, frame = self._mail.popleft()
            message = codec.decode(frame, self._layout.payload_bytes("float32"))
            self._feed(receiver, Heard(sender, message, len(frame)))

    def _feed(self, name: str, event: Event) -> None:
        if name in self.exits:
            return
        self._now += STEP_S
        for effect in self.nodes[name].handle(event, self._now):
            self._perform(name, effect)

    def _perform(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(peer=peer, message=message):
                frame = codec.encode(message)
                self.nodes[name].handle(Sent(peer, message, len(frame)), self._now)
                self._mail.append((name, peer, frame))
            case Train(round=number):
                self._train[name] = number
            case Merge():
                self._merge[name] = effect
            case CommitRound():
                self.commits[name].append(effect)
            case Exit():
                self.exits[name] = effect
            case _:
                pass
