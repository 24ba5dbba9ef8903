"""Begins to serve metrics. Imported only where they are asked for: the library is slow to load."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from pathlib import Path

from abps_node.errors import BindError
from abps_node.event_sink import EventSink
from abps_node.metrics.collector import CenterCollector
from abps_node.metrics.server import MetricsServer
from abps_node.transport import Counters
from protocol.center import Center


async def serve_metrics(
    file: Path,
    bind: str,
    center: Center,
    counters: Counters,
    inner: EventSink,
    queues: Mapping[str, Sized],
    patience_s: float,
) -> tuple[EventSink, MetricsServer, str]:
    """Serve them; returns the sink that is to hear of everything first, the server, and its URL.

    ``BindError`` names the key of ``file``, center.toml, if the port is still taken after
    ``patience_s``.
    """
    collector = CenterCollector(center, counters, inner, queues)
    server = MetricsServer(bind, collector.render, collector.lagged)
    try:
        url = await server.start(patience_s)
    except BindError as error:
        raise BindError(
            f"metrics.bind in {file}: {error}; end what holds the port, or change it"
        ) from error
    return collector, server, url
