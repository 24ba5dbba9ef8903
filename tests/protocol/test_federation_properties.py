"""Any interleaving of loss, delay, crash, restart, revocation, leave and join keeps the invariants.

Whole rounds only, at most κ partners, one session per pair and round, beliefs equal the fold over
recorded credits, no trunk of a revoked member in a merge that began later; after the network has
mended everybody finishes within a bound and no two ledgers disagree on any session, except with
members that left or were revoked.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.network import Faults, Network
from tests.support.federations import (
    check_at_rest,
    check_rounds,
    contract,
    heal_and_finish,
    network,
)


class Federation(RuleBasedStateMachine):
    """2–6 centers under attack by circumstances."""

    net: Network | None = None

    @initialize(
        size=st.integers(2, 6),
        kappa=st.integers(1, 3),
        rounds=st.integers(1, 6),
        patience=st.sampled_from([None, 1, 2]),
        round_min_s=st.sampled_from([0.0, 0.5]),
        slow=st.booleans(),
        greet=st.sampled_from(["all", "needed"]),
        seed=st.integers(0, 2**32),
    )
    def found(
        self,
        size: int,
        kappa: int,
        rounds: int,
        patience: int | None,
        round_min_s: float,
        slow: bool,
        greet: str,
        seed: int,
    ) -> None:
        policy = {"kappa": kappa, "rounds": rounds, "patience": patience, "epsilon": 0.2}
        # Longer than anybody stays away here: whoever is unseen for linger_s is given up for good.
        agreed = contract(policy, round_min_s=round_min_s, greet=greet, linger_s=600.0)
        train_s = {"a": 1.0} if slow else {}
        self.net = network("abcdef"[:size], agreed, seed=seed, train_s=train_s)
        self.net.start_all()

    def _pick(self, index: int) -> str:
        assert self.net is not None
        names = list(self.net.actors)
        return names[index % len(names)]

    @rule(seconds=st.floats(0.01, 3.0))
    def time_passes(self, seconds: float) -> None:
        assert self.net is not None
        self.net.run(self.net.now + seconds)

    @rule(
        loss=st.sampled_from([0.0, 0.05, 0.3]),
        duplication=st.sampled_from([0.0, 0.3]),
        delay=st.sampled_from([0.01, 0.5, 3.0]),
    )
    def weather_changes(self, loss: float, duplication: float, delay: float) -> None:
        assert self.net is not None
        self.net.faults = Faults(loss, duplication, (0.001, delay))

    @rule(index=st.integers(0, 5), effects=st.integers(0, 15))
    def center_crashes(self, index: int, effects: int) -> None:
        assert self.net is not None
        name = self._pick(index)
        if self.net.actors[name].node is not None:
            self.net.crash(name, after_effects=effects)

    @rule(index=st.integers(0, 5))
    def center_restarts(self, index: int) -> None:
        assert self.net is not None
        actor = self.net.actors[self._pick(index)]
        if actor.node is None and actor.exit is None:
            self.net.start(actor.id)

    @rule(index=st.integers(0, 5), seconds=st.floats(0.5, 20.0))
    def center_freezes(self, index: int, seconds: float) -> None:
        assert self.net is not None
        self.net.freeze(self._pick(index), seconds)

    @rule(index=st.integers(0, 5), other=st.integers(0, 5))
    def member_is_revoked(self, index: int, other: int) -> None:
        assert self.net is not None
        self.net.revoke(self._pick(index), by=self._pick(other))

    @rule(index=st.integers(0, 5), other=st.integers(0, 5))
    def member_is_admitted_again(self, index: int, other: int) -> None:
        assert self.net is not None
        self.net.readmit(self._pick(index), by=self._pick(other))

    @rule(index=st.integers(0, 5))
    def center_leaves(self, index: int) -> None:
        assert self.net is not None
        actor = self.net.actors[self._pick(index)]
        if actor.node is not None and actor.paused_until <= self.net.now:
            self.net.leave(actor.id)

    @precondition(lambda self: self.net is not None and "x" not in self.net.actors)
    @rule()
    def center_joins(self) -> None:
        assert self.net is not None
        self.net.join("x")

    @precondition(lambda self: self.net is not None)
    @invariant()
    def rounds_are_whole(self) -> None:
        assert self.net is not None
        check_rounds(self.net)

    def teardown(self) -> None:
        if self.net is not None:
            heal_and_finish(self.net, limit=3000.0)
            check_at_rest(self.net)


TestFederation = Federation.TestCase
TestFederation.settings = settings(max_examples=120, stateful_step_count=25)
