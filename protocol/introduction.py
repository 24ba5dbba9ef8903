"""Saying hello: to everybody, or only to whom a center has something to say.

``pacing.greet`` decides. «all»: every member is greeted as soon as discovery knows where it is, and
all cards are known before they are needed. «needed»: a federation of hundreds opens a connection
only in order to propose; the hello then goes first, and the proposal follows the answer. A center
whose goal filter needs the others' cards greets all in any case, and so does one that takes no
connections: whoever wants to propose to it needs one that it has opened, and keeps open by a ping
after every ``KEEP_S`` of silence.
"""

from __future__ import annotations

from protocol import PROTOCOL_VERSION
from protocol.center import Center, Phase
from protocol.messages import Hello, Ping
from protocol.peers import Peer, PeerStatus

INTRODUCTION_S = 1.0
"""Least time between two unasked hellos to one peer."""
KEEP_S = 5.0
"""A center that takes no connections says something over each of its own at least so often: what
breaks is opened again, and the other side learns by it which connection leads here."""
LOOK_S = 0.25
"""How often a center looks for peers that are due for a hello or a ping…"""
LOOK_PER_PEER_S = 0.005
"""…unless there are so many that looking itself takes its time."""


def hello(center: Center, reply: bool) -> Hello:
    """The own introduction."""
    return Hello(
        incarnation=center.identity.incarnation,
        center=center.id,
        protocol_version=PROTOCOL_VERSION,
        contract=center.contract_digest,
        initial_trunk=center.identity.initial_trunk,
        card=center.card_message(),
        finished=center.finished,
        reply=reply,
    )


def introduce(center: Center, peer: Peer) -> None:
    """Say hello, but not more often than once a second to the same peer."""
    if center.now < peer.next_introduction:
        return
    peer.next_introduction = center.now + INTRODUCTION_S
    center.send(peer.id, hello(center, reply=False))


def greets_all(center: Center) -> bool:
    """Whether everybody is greeted.

    The contract says so, the filter needs all cards, or nobody else could begin.
    """
    policy = center.contract.policy
    filtered = policy.tau_sim is not None or policy.keep_fraction is not None
    needs_cards = center.identity.goal != "none" and filtered
    everybody = center.contract.pacing.greet == "all"
    return everybody or needs_cards or center.identity.outbound_only


def contact_peers(center: Center) -> None:
    """Greet or ping, with jittered back-off, whoever is due for it."""
    if center.now < center.next_look:
        return
    center.next_look = center.now + max(LOOK_S, LOOK_PER_PEER_S * len(center.peers.by_id))
    due = [peer for peer in center.peers.all() if peer.is_due(center.now)]
    unmet = [peer for peer in due if not peer.met or peer.away]
    if not greets_all(center):
        unmet = _as_many_as_needed(center, unmet)
    for peer in unmet:
        introduce(center, peer)
        _back_off(center, peer)
    for peer in due:
        if peer.status is PeerStatus.SUSPECT:
            center.send(peer.id, Ping(center.identity.incarnation))
            _back_off(center, peer)
        elif center.identity.outbound_only and peer.status is PeerStatus.MET:
            _keep_connected(center, peer)


def _as_many_as_needed(center: Center, unmet: list[Peer]) -> list[Peer]:
    """Whose final words are missing, and before round 1 as many as ``min_peers`` lacks."""
    asked = set(center.ledger.peers_with_unsettled())
    needed = [peer for peer in unmet if peer.id in asked]
    if center.phase is not Phase.WAITING:
        return needed
    others = [peer for peer in unmet if peer.id not in asked]
    missing = center.contract.pacing.min_peers - len(center.peers.compatible())
    return needed + center.probe_rng.sample(others, max(0, min(missing, len(others))))


def _keep_connected(center: Center, peer: Peer) -> None:
    if center.now - peer.last_heard >= KEEP_S:
        center.send(peer.id, Ping(center.identity.incarnation))
        peer.next_contact = center.now + KEEP_S


def _back_off(center: Center, peer: Peer) -> None:
    peer.next_contact = center.now + peer.probe.next_delay(center.probe_rng)


def greet_before_proposing(center: Center, peer: Peer) -> None:
    """The hello that opens the way for a proposal."""
    introduce(center, peer)
    _back_off(center, peer)
