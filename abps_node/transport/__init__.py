"""Frames between authenticated centers: one ZeroMQ ROUTER socket with CURVE."""

from abps_node.transport.reports import Counters, PeerCounters
from abps_node.transport.socket import Transport
from abps_node.transport.undeliverable import Undeliverable

__all__ = ["Counters", "PeerCounters", "Transport", "Undeliverable"]
