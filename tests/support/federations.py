"""Small in-memory federations for tests of the pure core."""

from __future__ import annotations

from typing import Any

from protocol.beliefs import Belief
from protocol.contract import Contract
from protocol.events import Coalition
from protocol.record import RoundRecord
from protocol.session import State
from sim.network import Actor, Faults, Network, disagreements
from tests.support.contracts import contract_values

PACING = {
    "min_peers": 1,
    "start_wait_s": 5.0,
    "round_min_s": 0.5,
    "negotiation_s": 1.5,
    "exchange_s": 3.0,
    "linger_s": 20.0,
}


def contract(policy: dict[str, Any] | None = None, **pacing: Any) -> Contract:
    """Five rounds with one partner each, unless told otherwise."""
    values = contract_values()
    values["policy"] = {"rounds": 5, "kappa": 1, "epsilon": 0.0, **(policy or {})}
    values["pacing"] = {**PACING, **pacing}
    return Contract.model_validate(values)


def every_partner_helps(center: str, number: int, coalition: Coalition) -> float:
    """U grows with the number of partners."""
    return 0.7 + 0.02 * len(coalition)


def network(centers: str, agreed: Contract, seed: int = 1, **options: Any) -> Network:
    """A network of one-letter centers."""
    options.setdefault("utility", every_partner_helps)
    return Network(agreed, list(centers), seed=seed, **options)


def records(actor: Actor) -> list[RoundRecord]:
    """The committed rounds of a center."""
    return [commit.record for commit in actor.disk.commits]


def heal_and_finish(net: Network, limit: float = 600.0) -> None:
    """Mend the network, restart the dead, and let everybody come to an end."""
    net.faults = Faults()
    for name, actor in net.actors.items():
        actor.crash_after, actor.paused_until = None, net.now
        if actor.node is None and actor.exit is None:
            net.start(name)
    assert net.run_until(net.all_exited, net.now + limit), net.transcript[-40:]


def check_rounds(net: Network) -> None:
    """What must hold at any moment, whatever happened."""
    for actor in net.actors.values():
        written = records(actor)
        assert [record.round for record in written] == list(range(1, len(written) + 1))
        beliefs: dict[str, Belief] = {}
        for commit in actor.disk.commits:
            record = commit.record
            peers = [partner.peer for partner in record.partners]
            assert len(peers) <= record.kappa
            exchanged = peers + [partner.peer for partner in record.failed]
            assert len(set(exchanged)) == len(exchanged), "one session per pair and round"
            assert (record.rest is None) == bool(peers)
            for credit in commit.credits:
                prior = beliefs.get(credit.peer, Belief())
                beliefs[credit.peer] = prior.updated(credit.phi_bar)
        assert beliefs == actor.disk.beliefs
        for revoked, last in actor.merged_until.items():
            late = [record for record in written if record.round > last]
            assert all(p.peer != revoked for record in late for p in record.partners), revoked


def check_at_rest(net: Network) -> None:
    """What must hold after everybody has finished on a mended network."""
    check_rounds(net)
    assert disagreements(net) == []
    for actor in net.actors.values():
        for row in actor.disk.sessions.values():
            if net.gone & {actor.id, row.peer}:
                continue
            assert row.settled, row
            assert State(row.state) in (
                State.COMPLETE,
                State.RECEIVED_ONLY,
                State.SENT_ONLY,
                State.ABORTED,
                State.WITHDRAWN,
            )
