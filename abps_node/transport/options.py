"""The options of the ROUTER socket, with the reason for each value."""

from __future__ import annotations

from typing import Any, Final

import zmq

from abps_node.errors import TransportError
from abps_node.keys import KeyPair
from abps_node.transport.overhead import body_bytes
from abps_node.transport.trust import ZAP_DOMAIN

HANDSHAKE_MS: Final = 30_000
"""A connection that has not proved its key by then is closed. Generous: when a whole federation
starts on one small machine, handshakes wait for the processor."""
CONNECT_MS: Final = 10_000
RECONNECT_MS: Final = 100
RECONNECT_MAX_MS: Final = 5_000
KEEPALIVE_PROBES: Final = 3
DROP_LINGER_MS: Final = 500
"""What was handed to a connection that is being dropped has so long to leave."""
_BACKLOG: Final = 512


def check(max_frame_bytes: int, queue_frames: int, dead_after_s: float) -> None:
    """``TransportError`` for what libzmq would refuse, or take for «no limit»."""
    for name, found, least, most in (
        ("max_frame_bytes", max_frame_bytes, 1, 2**40),
        ("queue_frames", queue_frames, 1, 10**6),
        ("dead_after_s", dead_after_s, KEEPALIVE_PROBES, 86_400),
    ):
        if not least <= found <= most:
            raise TransportError(f"{name}: found {found}, allowed: {least} to {most}")


def apply_common(
    socket: zmq.Socket[Any],
    *,
    max_frame_bytes: int,
    queue_frames: int,
    dead_after_s: float,
    curve: bool,
) -> None:
    """Set what holds for accepted and for opened connections; must precede the first bind."""
    probe_s = round(dead_after_s / KEEPALIVE_PROBES)
    options: dict[int, int] = {
        # Bounds: length of a frame (compared with the encrypted body), and of what waits to be sent
        # over each connection; a full queue is an error of the send, never a wait. What waits to be
        # read the flood guard bounds, since a full queue there can end the process.
        zmq.MAXMSGSIZE: body_bytes(max_frame_bytes, curve),
        zmq.SNDHWM: queue_frames,
        zmq.RCVHWM: 0,
        zmq.ROUTER_MANDATORY: 1,
        # With keys, nobody can take over a routing id. Without, connections go by a random id of
        # their opener, so that a reconnection is recognized.
        zmq.ROUTER_HANDOVER: 0 if curve else 1,
        zmq.LINGER: DROP_LINGER_MS,
        # Connections that died without a word are TCP's to find. libzmq's own heartbeats must stay
        # off: one that falls due while a connection is broken and its queue full ends the whole
        # process (4.3.5, «Assertion failed: !_io_error», zeromq/libzmq#4364), which any member
        # could bring about by a flood.
        zmq.HEARTBEAT_IVL: 0,
        zmq.TCP_KEEPALIVE: 1,
        zmq.TCP_KEEPALIVE_IDLE: probe_s,
        zmq.TCP_KEEPALIVE_INTVL: probe_s,
        zmq.TCP_KEEPALIVE_CNT: KEEPALIVE_PROBES,
        zmq.TCP_MAXRT: round(dead_after_s * 1000),
        zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
        zmq.CONNECT_TIMEOUT: CONNECT_MS,
        zmq.RECONNECT_IVL: RECONNECT_MS,
        zmq.RECONNECT_IVL_MAX: RECONNECT_MAX_MS,
        zmq.BACKLOG: _BACKLOG,
    }
    for option, value in options.items():
        socket.setsockopt(option, value)


def serve_curve(socket: zmq.Socket[Any], keys: KeyPair) -> None:
    """Make the next bind accept only keys that the gatekeeper knows.

    libzmq copies the options at each bind and connect, which is why one socket can be a CURVE
    server towards those it accepts and a CURVE client towards those it connects to.
    """
    socket.setsockopt_string(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt(zmq.CURVE_SERVER, 1)


def demand_key(socket: zmq.Socket[Any], server_key: str) -> None:
    """Make the next connect succeed only with the holder of this key (z85)."""
    socket.setsockopt(zmq.CURVE_SERVER, 0)
    socket.setsockopt_string(zmq.CURVE_SERVERKEY, server_key)


def allow_ipv6(socket: zmq.Socket[Any], address: str) -> None:
    """IPv6 for the next bind or connect if the address asks for it."""
    socket.setsockopt(zmq.IPV6, int("[" in address))
