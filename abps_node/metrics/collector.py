"""The numbers of one center in Prometheus form, read from the running daemon at each scrape.

What is told of rounds and validation is what MQTT events tell (``discovery.mqtt_events``): a
utility has three decimals and is left out over few patients. Nothing of a patient, no weights, no
beliefs about others, no texts. Labels are ids of the roster and fixed words of this program, so
that nobody outside can make new time series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from abps_node import __version__
from abps_node.discovery.mqtt_events import told_utility
from abps_node.event_sink import EventSink
from abps_node.transport import Counters
from protocol.center import Center, Phase
from protocol.effects import CommitRound, Note
from protocol.peers import PeerStatus
from protocol.record import RestCause
from protocol.session import OPEN

LAG_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
ROUND_BUCKETS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_COUNTED: Final = frozenset({"trunk-refused", "misbehavior"})


class CenterCollector(Collector):
    """Hears what happens, as an event sink before the one of discovery, and renders it."""

    def __init__(
        self,
        center: Center,
        counters: Counters,
        inner: EventSink,
        queues: Mapping[str, Sized],
    ) -> None:
        """``queues``: what waits in the daemon, by name."""
        self._center = center
        self._counters = counters
        self._inner = inner
        self._queues = queues
        self._committed = 0
        self._partners = 0
        self._utility: tuple[str, float] | None = None
        self._exchanges: Counter[str] = Counter()
        self._isolated: Counter[tuple[str, bool]] = Counter(
            {(cause.value, cause.intentional): 0 for cause in RestCause}
        )
        self._refused: dict[str, Counter[str]] = {kind: Counter() for kind in _COUNTED}
        self._suspicions = 0
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._lag = Histogram(
            "abps_event_loop_lag_seconds",
            "How late the event loop was for an appointment that it has twice a second",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )
        self._rounds = Histogram(
            "abps_round_seconds",
            "Duration of committed rounds",
            buckets=ROUND_BUCKETS_S,
            registry=self.registry,
        )

    # What happens -------------------------------------------------------------------------------

    def note(self, note: Note, round: int) -> None:
        """Count suspicions and refusals."""
        if note.kind == "peer-suspect":
            self._suspicions += 1
        elif note.kind in _COUNTED:
            self._refused[note.kind][str(note.data.get("reason", "unnamed"))] += 1
        self._inner.note(note, round)

    def committed(self, commit: CommitRound) -> None:
        """Take over what the record of the round says."""
        record = commit.record
        self._committed += 1
        self._partners = len(record.partners)
        self._exchanges.update(each.outcome for each in (*record.partners, *record.failed))
        if record.rest is not None:
            self._isolated[record.rest.cause.value, record.rest.intentional] += 1
        self._rounds.observe(record.durations.get("total", 0.0))
        told = told_utility(record.validation, self._center.contract.data.card.min_events)
        self._utility = None if told is None else (record.validation.metric, told)
        self._inner.committed(commit)

    def lagged(self, seconds: float) -> None:
        """The loop came so much later than asked."""
        self._lag.observe(seconds)

    # What is told -------------------------------------------------------------------------------

    def render(self) -> bytes:
        """Everything in the text format of Prometheus."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield from self._progress()
        yield from self._federation()
        yield from self._bytes()
        yield from self._refusals()
        yield self._waiting()

    def _waiting(self) -> Metric:
        depth = GaugeMetricFamily(
            "abps_queue_depth", "What waits in each queue of the center", labels=["queue"]
        )
        for name, queue in self._queues.items():
            depth.add_metric([name], len(queue))
        depth.add_metric(["peers-to-ask"], len(self._center.round.queue))
        sessions = self._center.ledger.sessions.values()
        depth.add_metric(["open-sessions"], sum(session.state in OPEN for session in sessions))
        if isinstance(self._inner, Sized):
            depth.add_metric(["broker-events"], len(self._inner))
        return depth

    def _progress(self) -> Iterator[Metric]:
        center = self._center
        info = GaugeMetricFamily(
            "abps_center_info",
            "Always 1; which center, program and contract this is",
            labels=["center", "version", "contract"],
        )
        info.add_metric([center.id, __version__, center.contract_digest[:12]], 1)
        yield info
        yield _gauge(
            "abps_incarnation", "Number of this start of the center", center.identity.incarnation
        )
        yield _gauge("abps_round", "Number of the present round", center.round.number)
        yield _gauge(
            "abps_planned_rounds",
            "Rounds that the contract asks for",
            center.contract.policy.rounds,
        )
        yield _gauge("abps_best_round", "Round of the best model so far", center.best_round)
        yield _counter(
            "abps_committed_rounds", "Rounds that this start has committed", self._committed
        )
        phase = GaugeMetricFamily(
            "abps_phase",
            "1 for the phase that the center is in, 0 for the others",
            labels=["phase"],
        )
        for each in Phase:
            phase.add_metric([each.value], int(center.phase is each))
        yield phase
        if self._utility is not None:
            metric, value = self._utility
            utility = GaugeMetricFamily(
                "abps_validation_utility",
                "Utility on the own validation split after the last round, three decimals; "
                "absent over few patients",
                labels=["metric"],
            )
            utility.add_metric([metric], value)
            yield utility

    def _federation(self) -> Iterator[Metric]:
        center = self._center
        peers = GaugeMetricFamily(
            "abps_peers", "Other members of the roster by how they stand with us", labels=["status"]
        )
        for status in PeerStatus:
            peers.add_metric([status.value], center.peers.count(status))
        yield peers
        yield _gauge("abps_partners", "Partners of the last committed round", self._partners)
        exchanges = CounterMetricFamily(
            "abps_exchanges", "Exchanges of committed rounds by outcome", labels=["outcome"]
        )
        for outcome, count in self._exchanges.items():
            exchanges.add_metric([outcome], count)
        yield exchanges
        isolated = CounterMetricFamily(
            "abps_isolated_rounds", "Rounds without a partner", labels=["cause", "intentional"]
        )
        for (cause, intentional), count in self._isolated.items():
            isolated.add_metric([cause, str(intentional).lower()], count)
        yield isolated
        yield _counter("abps_suspicions", "Times that a peer fell silent", self._suspicions)

    def _bytes(self) -> Iterator[Metric]:
        frames = CounterMetricFamily(
            "abps_frames", "Frames exchanged with each peer", labels=["peer", "direction"]
        )
        wire = CounterMetricFamily(
            "abps_wire_bytes",
            "Bytes exchanged with each peer, framing and encryption included, TCP/IP not",
            labels=["peer", "direction"],
        )
        lost = CounterMetricFamily(
            "abps_lost_connections", "Connections that ended unexpectedly", labels=["peer"]
        )
        for peer, counted in sorted(self._counters.peers.items()):
            frames.add_metric([peer, "in"], counted.frames_in)
            frames.add_metric([peer, "out"], counted.frames_out)
            wire.add_metric([peer, "in"], counted.wire_in)
            wire.add_metric([peer, "out"], counted.wire_out)
            lost.add_metric([peer], counted.connections_lost)
        yield from (frames, wire, lost)

    def _refusals(self) -> Iterator[Metric]:
        counters = self._counters
        for name, text, counts in (
            ("abps_refused_trunks", "Trunks that failed a check", self._refused["trunk-refused"]),
            ("abps_misbehavior", "Noted misbehavior of peers", self._refused["misbehavior"]),
            (
                "abps_refused_handshakes",
                "Connections that could not prove to belong to the roster",
                counters.refused_handshakes,
            ),
            (
                "abps_dropped_frames",
                "Frames that did not reach the protocol",
                counters.dropped_frames,
            ),
            (
                "abps_cut_connections",
                "Connections that this center ended",
                counters.cut_connections,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=["reason"])
            for reason, count in sorted(counts.items()):
                family.add_metric([reason], count)
            yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
