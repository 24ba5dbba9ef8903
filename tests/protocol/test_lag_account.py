"""Wherever the own loop is late, the lateness stands in the record of some round."""

from __future__ import annotations

import pytest

from protocol.center import Phase
from protocol.effects import CommitRound
from protocol.events import Started, Tick
from tests.support.federations import contract
from tests.support.one_center import OneCenter

FROZEN_S = 20.0


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.TRAINING, Phase.CREDITING, Phase.PAUSING])
def test_a_freeze_is_recorded_whatever_the_phase(phase: Phase) -> None:
    pacing = {"min_peers": 1, "start_wait_s": 1.0, "negotiation_s": 0.5, "round_min_s": 3.0}
    it = OneCenter(contract({"rounds": 2}, **pacing), roster="am")
    it.feed(Started())

    def pass_through(now: Phase) -> None:
        assert it.node.phase is now
        if phase is now and not it.node.center.clock.lag:
            it.now += FROZEN_S
            it.feed(Tick())

    pass_through(Phase.WAITING)
    it.wait(1.5)
    for _ in range(2):
        pass_through(Phase.TRAINING)
        it.train()
        it.wait(1.0)
        pass_through(Phase.CREDITING)
        it.merge()
        if not it.node.center.finished:
            pass_through(Phase.PAUSING)
            it.wait(3.0)
    commits = [effect for effect in it.effects if isinstance(effect, CommitRound)]
    lags = [commit.record.loop_lag_s for commit in commits]
    assert len(lags) == 2
    assert sum(lags) == pytest.approx(FROZEN_S, abs=0.5)
    assert sum(lag > 0 for lag in lags) == 1
