"""One center as a process: feeds the state machine with events and performs its effects.

Everything that decides stands in ``protocol``. This file only connects it with the clock, the
transport, discovery, the store and the learning thread. Effects are performed strictly in order,
and commits return before anything after them is sent.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import torch

from abps_node.addresses import with_real_port
from abps_node.audit.chain import newest_start
from abps_node.audit.opening import open_record
from abps_node.audit.outbound import OutboundRecord
from abps_node.audit.recorder import close_recording, make_node
from abps_node.config import CenterConfig
from abps_node.data import CenterData, load_center
from abps_node.discovery import Discovery, make_discovery
from abps_node.errors import BindError, NodeError, Superseded
from abps_node.event_sink import EventSink, NoEvents
from abps_node.exits import ExitCode
from abps_node.learning import Learner, initial_trunk_digest, make_learner, trunk_layout
from abps_node.members import Members
from abps_node.members_file import with_members
from abps_node.metrics.server import MetricsServer
from abps_node.signals import listen_to_signals
from abps_node.store import Recovered, Store, models
from abps_node.store.memory import memory_of
from abps_node.store.salvage import salvage
from abps_node.traffic import Traffic
from abps_node.transport import Transport, Undeliverable
from abps_node.worker import Worker
from protocol import codec
from protocol import events as ev
from protocol.center import Identity
from protocol.effects import (
    CommitRound,
    Effect,
    Exit,
    Merge,
    Note,
    PeerChanged,
    PhaseChanged,
    SaveSessions,
    Send,
    Train,
)
from protocol.errors import RemoteError
from protocol.messages import Hello

HOUSEKEEPING_S: Final = 1.0
REBIND_S: Final = 5.0
"""How long a new copy waits for an older one to give up the port."""
LINGER_MS: Final = 1000
TAKES_NO_CONNECTIONS: Final = "takes no connections, only opens them"

_EXIT_CODES: Final = {
    "finished": ExitCode.OK,
    "left": ExitCode.OK,
    "stopped": ExitCode.STOPPED,
    "superseded": ExitCode.SUPERSEDED,
    "refused": ExitCode.REFUSED,
}
_log = logging.getLogger("abps_node.daemon")
Begin = Callable[[], Awaitable[None]]
"""Awaited once the center listens and is announced; returns when it may begin."""


def run_center(config: CenterConfig, begin: Begin | None = None) -> int:
    """Run one center until it has finished, is stopped, or cannot go on; returns an exit code.

    ``begin``: before it returns the center answers, but looks for nobody and trains nothing.

    Raises ``NodeError`` for bad data, keys, state, or an address that cannot be bound.
    """
    torch.set_num_threads(1)
    contract = config.federation.contract
    data = load_center(contract, config.id, config.data, config.aims)
    learner = make_learner(contract, data, config.seed, config.aims)
    with Store.open(
        config.state_dir,
        config.id,
        contract,
        patients=data.fingerprint,
        views_every_s=HOUSEKEEPING_S,
    ) as store:
        incarnation = store.begin_incarnation(after=newest_start(config.state_dir))
        found = salvage(config.state_dir, store)
        if found.tensors is not None:
            learner.load_state_tensors(found.tensors)
        record = open_record(config.state_dir, store, config.id, incarnation, contract.digest())
        daemon = Daemon(config, data, learner, store, record, incarnation, found.recovered, begin)
        # A full collection walks through all that torch has loaded, 0.1 s and more in which nobody
        # is answered. What is there now stays to the end, so it need not be looked at again.
        gc.freeze()
        with record:
            return asyncio.run(daemon.run())


class Daemon:
    """The skin around one ``Node``."""

    def __init__(
        self,
        config: CenterConfig,
        data: CenterData,
        learner: Learner,
        store: Store,
        record: OutboundRecord,
        incarnation: int,
        recovered: Recovered,
        begin: Begin | None = None,
    ) -> None:
        contract = config.federation.contract
        self._config = config
        self._store = store
        self._outbound = record
        self._recovered = recovered
        self._begin = begin
        self._begun = asyncio.Event()
        self._identity = Identity(
            center=config.id,
            incarnation=incarnation,
            seed=config.seed,
            goal=config.goal,
            card=data.card,
            # Never exact below what the card tells: so few patients are nobody's business.
            size=max(int(data.train.y.shape[0]), contract.data.card.min_patients),
            layout=trunk_layout(contract),
            initial_trunk=initial_trunk_digest(contract),
            join_from=config.join_from,
            outbound_only=config.bind is None,
        )
        self._members = Members(config)
        roster = self._members.now.keys
        self._node = make_node(config, self._identity, roster, memory_of(recovered))
        self._worker = Worker(config, data, learner)
        self._max_payload = self._identity.layout.payload_bytes(contract.policy.wire_dtype)
        self._curve = contract.security == "curve"
        self._traffic = Traffic(self._curve)
        self._transport = Transport(
            center_id=config.id,
            bind=config.bind,
            keys=self._members.own_keys,
            roster=roster,
            max_frame_bytes=codec.max_frame_bytes(self._max_payload),
            on_frame=self._on_frame,
            on_misbehavior=self._on_misbehavior,
            on_notice=self._on_notice,
            identify=None if self._curve else self._identify,
        )
        self._sink: EventSink = NoEvents()
        self._metrics: MetricsServer | None = None
        self._inbox: deque[ev.Event] = deque()
        self._busy = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._housekeeping_due = 0.0

    async def run(self) -> int:
        """Start everything, wait for the end, take everything down again."""
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Exit] = loop.create_future()
        listen_to_signals(loop, self._on_signal)
        endpoint = await self._bind()
        discovery = make_discovery(
            with_members(self._config, self._members.own_key),
            self._config.id,
            self._config.mqtt,
            self._on_remark,
            self._outbound.published,
        )
        self._sink = discovery.events
        try:
            await self._announce(discovery, endpoint)
            if self._config.metrics_bind is not None:
                await self._serve_metrics(self._config.metrics_bind, discovery.events)
            self._feed(ev.Started())
            if self._recovered.finished:
                self._start_reports()
            discovery.admit(self._members.now.keys, self._members.own_key)
            self._spawn("begin", self._await_begin())
            self._spawn("discovery", self._discover(discovery))
            tell = partial(self._tell_address, discovery, endpoint)
            heard = (self._feed, self._on_found, self._on_remark)
            self._spawn("members", self._members.watch(self._transport, discovery, *heard, tell))
            self._on_tick()
            end = await self._end
        finally:
            await self._take_down(discovery)
        _log.info("%s", end.detail, extra={"event": "ended", "fields": {"why": end.why}})
        return int(_EXIT_CODES[end.why])

    # Start and end ------------------------------------------------------------------------------

    async def _await_begin(self) -> None:
        if self._begin is not None:
            await self._begin()
        self._begun.set()

    async def _discover(self, discovery: Discovery) -> None:
        await self._begun.wait()
        await discovery.watch(self._on_found)

    async def _bind(self) -> str:
        """Bind; an older copy of this center on the same port gets a moment to notice and end."""
        deadline = time.monotonic() + REBIND_S
        while True:
            try:
                return await self._transport.start()
            except BindError as error:
                if time.monotonic() >= deadline:
                    raise BindError(
                        f"bind in {self._config.path}: {error}; end what holds the port, or change "
                        "bind"
                    ) from error
                await asyncio.sleep(0.25)

    async def _announce(self, discovery: Discovery, endpoint: str) -> None:
        self._store.set_runtime(endpoint or TAKES_NO_CONNECTIONS, os.getpid())
        address = await self._tell_address(discovery, endpoint)
        fields = {
            "endpoint": endpoint or None,
            "address": address,
            "incarnation": self._identity.incarnation,
            "contract": self._config.federation.contract.digest()[:12],
            "last_round": self._recovered.last_round,
        }
        where = f"listening on {endpoint}" if endpoint else TAKES_NO_CONNECTIONS
        _log.info("%s", where, extra={"event": "started", "fields": fields})
        if not self._curve:
            text = "security is «none»: everything, trunks included, goes in clear over the network"
            _log.warning(text, extra={"event": "insecure"})

    async def _serve_metrics(self, bind: str, inner: EventSink) -> None:
        # Here, since the library takes half a second to import.
        from abps_node.metrics.serving import serve_metrics

        queues = {"events": self._inbox, "tasks": self._tasks}
        center, counters = self._node.center, self._transport.counters
        self._sink, self._metrics, url = await serve_metrics(
            self._config.path, bind, center, counters, inner, queues, REBIND_S
        )
        _log.info("metrics at %s", url, extra={"event": "metrics", "fields": {"url": url}})

    async def _tell_address(self, discovery: Discovery, endpoint: str) -> str | None:
        """Announce it, unless no connections are taken."""
        if not endpoint:
            return None
        told = self._config.advertise or self._config.member.address or endpoint
        address = with_real_port(told, endpoint)
        await discovery.announce(address, self._identity.incarnation)
        return address

    async def _take_down(self, discovery: Discovery) -> None:
        tasks = [*self._tasks, *([self._reports] if self._reports else [])]
        for task in tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._metrics is not None:
            await self._metrics.close()
        await self._transport.close(LINGER_MS)
        await asyncio.to_thread(self._worker.close)
        close_recording(self._node)
        await discovery.withdraw()
        try:
            self._store.add_traffic(self._traffic.drain())
        except Superseded:
            # The newer copy keeps its own accounts; this one may not write any more.
            _log.warning("the last byte counts of this copy are lost, a newer one runs")

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Canceled before its first step, the task would leave the work behind, never awaited.
        task.add_done_callback(lambda _: work.close())

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """The root of every task: what goes wrong in it ends the daemon with that error."""
        try:
            await work
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    def _on_signal(self, number: int) -> None:
        self._worker.cancel()
        self._feed(ev.StopRequested(f"{signal.Signals(number).name} received"))

    async def _end_with(self, end: Exit) -> None:
        """After the last round the reports are awaited; a failure meanwhile ends the daemon too."""
        if end.why == "finished" and self._reports is not None:
            await self._reports
        if not self._end.done():
            self._end.set_result(end)

    # Events in ----------------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Hand one event to the state machine; events that arise meanwhile wait their turn."""
        self._inbox.append(event)
        if self._busy or self._end.done():
            return
        self._busy = True
        try:
            while self._inbox:
                for effect in self._node.handle(self._inbox.popleft(), time.monotonic()):
                    self._perform(effect)
        except Exception as error:  # noqa: BLE001 - root of every callback: end, never limp on
            self._fail(error)
        finally:
            self._busy = False
        self._schedule_tick()

    def _on_frame(self, peer: str, frame: bytes) -> None:
        if not self._node.has_room(peer, time.monotonic()):
            # Decoding is what a flood would cost most.
            self._traffic.add(peer, "in", "dropped", len(frame))
            self._feed(ev.Flooded(peer))
            return
        try:
            message = codec.decode(frame, self._max_payload)
        except RemoteError as error:
            self._traffic.add(peer, "in", "refused", len(frame))
            self._feed(ev.Misbehaved(peer, error.reason, error.detail))
            return
        # The accounts come after the answer, for which the peer waits.
        self._feed(ev.Heard(peer, message, len(frame)))
        self._traffic.add(peer, "in", message.kind, len(frame))
        self._store.seen(peer)

    def _on_misbehavior(self, peer: str | None, reason: str, detail: str) -> None:
        self._feed(ev.Misbehaved(peer or "", reason, detail))

    def _on_notice(self, peer: str | None, reason: str, detail: str) -> None:
        """Nobody's fault for certain, but worth a line; an oversized frame shows only here."""
        text = f"{peer or 'a stranger'}: {reason}, {detail}"
        self._on_remark(Note("connection", "info", peer, text, {"reason": reason}))

    def _on_remark(self, note: Note) -> None:
        """What transport and discovery have to say, from callbacks of their own."""
        try:
            self._note(note)
        except NodeError as error:
            self._fail(error)

    def _identify(self, frame: bytes) -> str | None:
        """Without CURVE a center is who its hello claims to be."""
        try:
            message = codec.decode(frame, self._max_payload)
        except RemoteError:
            return None
        return message.center if isinstance(message, Hello) else None

    def _on_found(self, peer: str, address: str | None) -> None:
        if address is None:
            self._feed(ev.Unreachable(peer))
            return
        self._transport.set_address(peer, address)
        self._feed(ev.Reachable(peer))

    def _on_tick(self) -> None:
        """Time passed; once a second there is something to look after, too."""
        self._timer = None
        self._feed(ev.Tick())
        self._members.glance()
        self._transport.glance()
        now = time.monotonic()
        if now >= self._housekeeping_due:
            self._housekeeping_due = now + HOUSEKEEPING_S
            try:
                self._housekeep()
            except Exception as error:  # noqa: BLE001 - root of the timer: end, never stop ticking
                self._fail(error)

    def _schedule_tick(self) -> None:
        """The next tick comes when the state machine has a use for it."""
        if self._end.done():
            return
        loop = asyncio.get_running_loop()
        wanted = loop.time() + self._node.next_tick()
        if self._timer is not None:
            if self._timer.when() <= wanted:
                return
            self._timer.cancel()
        self._timer = loop.call_at(wanted, self._on_tick)

    def _housekeep(self) -> None:
        newest = self._store.current_incarnation()
        if newest != self._identity.incarnation:
            raise Superseded(
                f"{self._config.id}: incarnation {newest} of this center was started; "
                f"this copy, {self._identity.incarnation}, ends"
            )
        self._store.add_traffic(self._traffic.drain())
        self._store.write_views()

    # Effects out --------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case SaveSessions(rows=rows):
                self._store.save_sessions(rows)
            case CommitRound():
                self._commit(effect)
            case Train():
                self._spawn("train", self._train(effect))
            case Merge():
                self._spawn("merge", self._merge(effect))
            case Note():
                self._note(effect)
            case PhaseChanged():
                self._store.phase(effect)
            case PeerChanged():
                self._store.peer(effect)
            case Exit():
                self._spawn("end", self._end_with(effect))
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    def _send(self, effect: Send) -> None:
        frame = codec.encode(effect.message)
        # Before it is said: what a killed process has sent is written down.
        line = self._outbound.message(effect.peer, effect.message, len(frame))
        try:
            self._transport.send(effect.peer, frame)
        except Undeliverable as error:
            self._outbound.undelivered(line, error.reason)
            self._inbox.append(ev.Undeliverable(effect.peer, str(error.reason)))
            return
        self._traffic.add(effect.peer, "out", effect.message.kind, len(frame))
        self._inbox.append(ev.Sent(effect.peer, effect.message, len(frame)))

    def _commit(self, effect: CommitRound) -> None:
        self._store.commit_round(effect)
        self._sink.committed(effect)
        models.prune(self._config.state_dir, self._store.models_in_use())
        if effect.finished:
            self._start_reports()

    async def _train(self, effect: Train) -> None:
        await self._begun.wait()
        self._feed(await self._worker.train(effect))

    async def _merge(self, effect: Merge) -> None:
        self._feed(await self._worker.merge(effect))

    def _note(self, note: Note) -> None:
        number = self._node.center.round.number
        self._store.note(note, number)
        self._sink.note(note, number)
        fields = {**note.data, **({"peer": note.peer} if note.peer else {})}
        level = logging.getLevelNamesMapping()[note.level.upper()]
        _log.log(level, "%s", note.text, extra={"event": note.kind, "fields": fields})

    # Reports ------------------------------------------------------------------------------------

    def _start_reports(self) -> None:
        self._reports = asyncio.get_running_loop().create_task(self._report(), name="reports")

    async def _report(self) -> None:
        """Test metrics, once, after the last round: of the federated model, of what private
        fine-tuning made of it, and of alone."""
        recovered = salvage(self._config.state_dir, self._store).recovered
        patience = self._config.federation.contract.policy.patience
        model = recovered.model if patience is None else recovered.best_model
        if model is None:
            raise NodeError(f"{self._config.id}: finished without a committed model")
        report = await self._worker.federated_report(model)
        rounds = {"best_round": recovered.best_round, "rounds": recovered.last_round}
        self._store.save_report("federated", {**report, **rounds})
        tuned = await self._worker.fine_tune()
        if tuned is not None:
            self._store.save_report("stage2", {**tuned, **rounds})
        if self._config.compare_alone:
            alone = await self._worker.alone_report(self._identity)
            if alone is not None:
                self._store.save_report("alone", alone)
