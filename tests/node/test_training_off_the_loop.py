"""A local step takes as long as it takes; meanwhile proposals are answered and trunks exchanged."""

from __future__ import annotations

import threading
from pathlib import Path

from abps_node.learning import Learner, TrainResult
from protocol.messages import Accept, Done, Hello, Message, Propose, Reject, Rejected, Weights
from tests.support.player import Player
from tests.support.residents import Residents, eventually
from tests.support.soundness import records
from tests.support.wards import ward_contract, ward_federation


async def test_proposals_are_answered_while_a_step_runs(
    tmp_path: Path, residents: Residents
) -> None:
    training, release = threading.Event(), threading.Event()

    class Slow(Learner):
        """Its second local step takes until it is released."""

        def train(self, round: int) -> TrainResult:
            if round == 2:
                training.set()
                assert release.wait(60)
            return super().train(round)

    agreed = ward_contract({"rounds": 2, "kappa": 1})
    layout = ward_federation(tmp_path / "f", ["amber", "crow"], agreed)
    amber = residents.start(layout.centers[0], Slow)
    player = Player(layout.centers[1], layout.centers[0])

    def decline(message: Message) -> None:
        if isinstance(message, Propose):
            player.say(Rejected(1, message.session, Reject.BUSY))

    player.on_message = decline
    await eventually(lambda: amber.endpoint)
    assert amber.endpoint is not None
    await player.connect(amber.endpoint)
    try:
        player.say(player.hello())
        await eventually(lambda: player.of(Hello) and training.is_set())
        assert amber.reader.status().phase == "training"

        session = player.propose(1)
        await eventually(lambda: player.of(Accept))
        assert player.of(Accept)[0].round == 2
        player.say(player.weights(session))
        await eventually(lambda: player.of(Weights) and player.of(Done))
        (theirs,) = player.of(Weights)
        assert (theirs.session, theirs.round, theirs.staleness) == (session, 1, 1)
        assert player.of(Done)[0].verified
        player.say(Done(1, session, True, ""))
        assert (amber.last_round(), amber.reader.status().phase) == (1, "training")
        assert not release.is_set()

        release.set()
        await eventually(lambda: amber.last_round() == 2)
    finally:
        release.set()
        await player.close()
    first, second = records(layout.centers[0])
    assert first.rest is not None and first.rest.cause == "all-busy"
    assert [(partner.peer, partner.outcome) for partner in second.partners] == [
        ("crow", "complete")
    ]
