"""Trunks over a session: send the newest finished one, check what comes, acknowledge.

A trunk that fails its checks is a recorded outcome with credit 0, never an exception (paper
section 4.2 leaves this open; see ``docs/decisions.md``).
"""

from __future__ import annotations

from protocol import trunk as trunks
from protocol.center import Center
from protocol.errors import TrunkError
from protocol.ledger import Session
from protocol.messages import Done, Weights
from protocol.peers import Peer
from protocol.session import MERGEABLE, Input, State, is_allowed


def send_trunk(center: Center, session: Session) -> None:
    """Send the trunk of the newest finished local step; never wait for one under way."""
    own = center.own
    if own is None:
        raise AssertionError("a session was promised before the first local step was done")
    session.sent = True
    message = Weights(
        incarnation=center.identity.incarnation,
        session=session.id,
        round=own.round,
        staleness=center.round.number - own.round,
        size=center.identity.size,
        dtype=center.contract.policy.wire_dtype,
        layout=center.layout_digest,
        payload=own.payload,
    )
    center.send(session.peer, message)


def on_weights(center: Center, peer: Peer, message: Weights, frame_bytes: int) -> None:
    """Check a trunk; as acceptor answer it with the own one; acknowledge either way."""
    session = center.ledger.sessions.get(message.session)
    if session is None or not is_allowed(session.state, Input.TRUNK):
        here = session is not None and (
            session.state in MERGEABLE or session.state is State.RECEIVED
        )
        _acknowledge(center, peer, message, "" if here else "closed")
        return
    session.bytes_received += frame_bytes
    session.peer_round, session.staleness = message.round, message.staleness
    session.size = message.size
    try:
        vector = _checked(center, peer, message)
    except TrunkError as error:
        _refuse(center, peer, session, message, error)
        return
    answering = session.state is State.ACCEPTED
    session.apply(Input.TRUNK)
    session.trunk = vector
    peer.delivered()
    if answering:
        send_trunk(center, session)
    _acknowledge(center, peer, message, "")


def _checked(center: Center, peer: Peer, message: Weights) -> trunks.Vector:
    policy = center.contract.policy
    if message.round + message.staleness > policy.rounds:
        found = f"found round {message.round} and {message.staleness} rounds of staleness"
        raise TrunkError("trunk-claim", f"{found}, allowed: rounds 1 to {policy.rounds}")
    if message.layout != center.layout_digest:
        found, own = message.layout[:12], center.layout_digest[:12]
        raise TrunkError("trunk-layout", f"found {found}…, allowed: {own}…")
    if message.dtype != policy.wire_dtype:
        raise TrunkError("trunk-dtype", f"found {message.dtype}, allowed: {policy.wire_dtype}")
    if policy.max_staleness is not None and message.staleness > policy.max_staleness:
        allowed = f"at most {policy.max_staleness} rounds"
        raise TrunkError("stale", f"found {message.staleness} rounds, allowed: {allowed}")
    vector = trunks.unpack(message.payload, center.identity.layout, policy.wire_dtype)
    own_norm = center.own.norm if center.own is not None else 0.0
    trunks.check(vector, own_norm, policy.max_norm_ratio)
    center.provenance.check(peer.id, message.payload, message.round)
    return vector


def _refuse(
    center: Center, peer: Peer, session: Session, message: Weights, error: TrunkError
) -> None:
    session.apply(Input.BAD_TRUNK)
    session.refused = str(error)
    session.penalized = error.reason != "stale"
    text = f"trunk of {peer.id} refused, {error}"
    center.note("trunk-refused", text, peer.id, "warning", reason=error.reason)
    _acknowledge(center, peer, message, error.reason)


def _acknowledge(center: Center, peer: Peer, message: Weights, reason: str) -> None:
    done = Done(center.identity.incarnation, message.session, not reason, reason)
    center.send(peer.id, done)


def on_done(center: Center, message: Done) -> None:
    """Evidence that the own trunk arrived, or was refused."""
    session = center.ledger.sessions.get(message.session)
    event = Input.ACK if message.verified else Input.NACK
    if session is None or not is_allowed(session.state, event):
        return
    session.apply(event)
    if not message.verified and message.reason not in ("", "closed"):
        text = f"{session.peer} refused our trunk: {message.reason}"
        center.note("own-trunk-refused", text, session.peer, "warning")
