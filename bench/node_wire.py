"""What a center costs on the wire: ``python bench/node_wire.py`` (figures: ``bench/README.md``).

A real daemon runs as a process; a scripted peer talks to it over the real transport, CURVE on.

1. Round trip: propose → accept and propose → reject, against a bare CURVE echo of frames of the
   same length, in alternating blocks, so that a machine that gets slower slows all alike.
2. The same while the daemon trains, for information.
3. Bytes of whole exchanges, counted by a TCP proxy, against the two trunks that each one moves.

Human text first, one JSON object as the last line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from counting_proxy import CountingProxy
from curve_echo import EchoClient, running_echo
from real_center import Changes, RealCenter, running_center
from scripted_peer import ScriptedPeer

from abps_node.store.reader import Reader
from abps_node.transport import overhead
from protocol import codec
from protocol import messages as m

BLOCK: Final = 25
UNHURRIED: Final[dict[str, Any]] = {"messages_per_s": 1e6, "start_wait_s": 60.0, "min_peers": 1}
"""The rate limit is not what is measured; and no round begins before the peer is there."""
STANDING: Final[dict[str, Any]] = {**UNHURRIED, "round_min_s": 3600.0, "negotiation_s": 3600.0}
"""Round 1 stays open: the center is idle, ready, and has a free slot."""
FLOWING: Final[dict[str, Any]] = {**UNHURRIED, "round_min_s": 0.1, "negotiation_s": 30.0}
TRAINING_EPOCHS: Final = 500
TRAINING_LIMIT_S: Final = 20.0


@dataclass
class RoundTrips:
    """Seconds of each round trip, by what was asked."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    frame_bytes: int = 0

    def add(self, name: str, seconds: float) -> None:
        """One more sample."""
        self.seconds.setdefault(name, []).append(seconds)

    def percentiles_us(self, name: str) -> dict[str, float]:
        """p50, p95 and p99 in microseconds."""
        found = np.percentile(self.seconds[name], (50, 95, 99)) * 1e6
        return dict(zip(("p50", "p95", "p99"), map(float, found), strict=True))

    def p50_us(self, name: str) -> float:
        """Median in microseconds."""
        return self.percentiles_us(name)["p50"]


@dataclass(frozen=True)
class Wire:
    """What crossed the wire between two centers."""

    exchanges: int
    payload_bytes: int
    """Of one packed trunk."""
    handshake: int
    """Bytes until both had introduced each other."""
    steady: int
    """Bytes of the exchanges, with everything else that was said meanwhile."""
    predicted: int
    """The same as ``transport.overhead`` computes it from the frames."""

    @property
    def ratio(self) -> float:
        """Bytes per exchange over the bytes of its two trunks."""
        return self.steady / (self.exchanges * 2 * self.payload_bytes)


async def ready_peer(stack: AsyncExitStack, center: RealCenter) -> ScriptedPeer:
    """A peer that has met the center."""
    peer = ScriptedPeer(center.peer, center.config.id)
    stack.push_async_callback(peer.close)
    await peer.meet(center.address)
    return peer


# Round trips ------------------------------------------------------------------------------------


async def measure_round_trips(directory: Path, samples: int) -> RoundTrips:
    """Echo, accept and reject in turn, ``samples`` of each."""
    async with AsyncExitStack() as stack:
        center = await stack.enter_async_context(running_center(directory, {"pacing": STANDING}))
        peer = await ready_peer(stack, center)
        echo = await stack.enter_async_context(running_echo())
        peer.decline(await peer.hear(m.Propose))
        await peer.settle_down()
        frame = codec.encode(peer.proposal())
        await run_blocks(peer, echo, frame, min(samples, BLOCK))  # warm up, not counted
        trips = await run_blocks(peer, echo, frame, samples)
        trips.frame_bytes = len(frame)
        return trips


async def run_blocks(
    peer: ScriptedPeer, echo: EchoClient, frame: bytes, samples: int
) -> RoundTrips:
    """Blocks of the three kinds in turn until there are ``samples`` of each."""
    trips = RoundTrips()
    for start in range(0, samples, BLOCK):
        block = min(BLOCK, samples - start)
        for _ in range(block):
            trips.add("echo", await echo.round_trip(frame))
        await accepts(peer, trips, block)
        await rejects(peer, trips, block)
    return trips


async def accepts(peer: ScriptedPeer, trips: RoundTrips, count: int) -> None:
    """Each accept is a new session, durable before it is said; the slot is freed untimed."""
    for _ in range(count):
        accept, seconds = await peer.propose(m.Accept)
        trips.add("accept", seconds)
        await peer.withdraw(accept.session)


async def rejects(peer: ScriptedPeer, trips: RoundTrips, count: int) -> None:
    """While one session is open, further proposals of the same peer are rejected."""
    held, _ = await peer.propose(m.Accept)
    for _ in range(count):
        trips.add("reject", (await peer.propose(m.Rejected))[1])
    await peer.withdraw(held.session)


async def measure_during_training(directory: Path, samples: int) -> RoundTrips:
    """Propose → accept while a local step runs; samples that straddle its ends are left out."""
    changes: Changes = {"pacing": FLOWING, "training": {"epochs": TRAINING_EPOCHS}}
    trips = RoundTrips()
    async with AsyncExitStack() as stack:
        center = await stack.enter_async_context(running_center(directory, changes))
        peer = await ready_peer(stack, center)
        peer.declines = True
        reader = Reader(center.config.state_dir)
        deadline = time.monotonic() + TRAINING_LIMIT_S
        while len(trips.seconds.get("accept", ())) < samples and time.monotonic() < deadline:
            before = training_round(reader)
            if before < 2:  # the first local step has nothing yet to promise
                await asyncio.sleep(0.02)
                continue
            batch = RoundTrips()
            await accepts(peer, batch, min(BLOCK, samples))
            if training_round(reader) == before:
                for seconds in batch.seconds["accept"]:
                    trips.add("accept", seconds)
    return trips


def training_round(reader: Reader) -> int:
    """The round whose local step runs now, else 0."""
    status = reader.status()
    return status.phase_round if status.phase == "training" else 0


# Bytes ------------------------------------------------------------------------------------------


async def measure_wire(directory: Path, exchanges: int) -> Wire:
    """Whole exchanges of consecutive rounds, from one proposal of the center to another.

    When a proposal is here everything before it has been said and counted, and nothing more is
    said until it is answered.
    """
    changes: Changes = {"pacing": FLOWING, "training": {"epochs": 1}}
    async with AsyncExitStack() as stack:
        center = await stack.enter_async_context(running_center(directory, changes))
        proxy = await stack.enter_async_context(CountingProxy(center.address))
        through = RealCenter(center.config, center.peer, proxy.address)
        peer = await ready_peer(stack, through)
        handshake = proxy.upstream + proxy.downstream
        await peer.exchange(await peer.hear(m.Propose))
        proposal = await peer.hear(m.Propose)
        counted, predicted = proxy.upstream + proxy.downstream, predicted_bytes(peer)
        for _ in range(exchanges):
            weights = await peer.exchange(proposal)
            proposal = await peer.hear(m.Propose)
        return Wire(
            exchanges=exchanges,
            payload_bytes=len(weights.payload),
            handshake=handshake,
            steady=proxy.upstream + proxy.downstream - counted,
            predicted=predicted_bytes(peer) - predicted,
        )


def predicted_bytes(peer: ScriptedPeer) -> int:
    """Bytes of all frames of this connection, both ways, as the transport computes them."""
    counters = peer.transport.counters.peer(peer.center)
    return counters.wire_in + counters.wire_out


# Report -----------------------------------------------------------------------------------------


def print_trips(trips: RoundTrips, training: RoundTrips) -> None:
    """The table of round trips."""
    print(f"Round trips of frames of {trips.frame_bytes} bytes, microseconds")
    rows = [
        ("bare CURVE echo", trips, "echo"),
        ("propose → accept", trips, "accept"),
        ("propose → reject", trips, "reject"),
        ("propose → accept, training", training, "accept"),
    ]
    print(f"  {'':28}{'p50':>9}{'p95':>9}{'p99':>9}{'samples':>9}{'p50 / echo':>12}")
    for label, measured, name in rows:
        if name not in measured.seconds:
            print(f"  {label:28}no local step lasted long enough")
            continue
        values = "".join(f"{value:9.0f}" for value in measured.percentiles_us(name).values())
        ratio = measured.p50_us(name) / trips.p50_us("echo")
        print(f"  {label:28}{values}{len(measured.seconds[name]):9}{ratio:12.2f}")


def print_wire(wire: Wire) -> None:
    """The account of bytes."""
    handshakes = overhead.CURVE_CLIENT_HANDSHAKE_BYTES + overhead.CURVE_SERVER_HANDSHAKE_BYTES
    each = wire.steady / wire.exchanges
    print(f"\nBytes on the wire, {wire.exchanges} exchanges of two trunks (bfloat16)")
    print(f"  trunk                       {wire.payload_bytes:9}")
    print(f"  per exchange, counted       {each:9.0f}   {wire.ratio:.4f} of the two trunks")
    print(f"  per exchange, predicted     {wire.predicted / wire.exchanges:9.0f}   ", end="")
    print(f"{wire.steady - wire.predicted:+d} bytes counted beyond it in all")
    print(f"  once per connection         {wire.handshake:9}   CURVE {handshakes}, introductions")


def summary(trips: RoundTrips, training: RoundTrips, wire: Wire) -> dict[str, Any]:
    """The last line; its headline is the ratio of accepts, which are durable before said."""
    echo = trips.p50_us("echo")
    times = {
        f"{name}_{percentile}_us": round(value, 1)
        for name in ("echo", "accept", "reject")
        for percentile, value in trips.percentiles_us(name).items()
    }
    return {
        "bench": "node_wire",
        "rtt_ratio_to_curve_echo": round(trips.p50_us("accept") / echo, 3),
        "rtt_ratio_reject": round(trips.p50_us("reject") / echo, 3),
        "wire_ratio_to_payload": round(wire.ratio, 4),
        **times,
        "accept_while_training_p50_us": (
            round(training.p50_us("accept"), 1) if training.seconds else None
        ),
        "samples": len(trips.seconds["accept"]),
        "exchanges": wire.exchanges,
        "wire_bytes_per_exchange": round(wire.steady / wire.exchanges),
        "wire_bytes_predicted": round(wire.predicted / wire.exchanges),
        "handshake_bytes": wire.handshake,
    }


async def measure(samples: int, exchanges: int) -> dict[str, Any]:
    """Run all parts, print what people read, return what programs read."""
    machine = {"processors": os.cpu_count(), "load_before": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="node-wire-") as name:
        directory = Path(name)
        trips = await measure_round_trips(directory / "standing", samples)
        training = await measure_during_training(directory / "training", max(1, samples // 4))
        wire = await measure_wire(directory / "flowing", exchanges)
    print_trips(trips, training)
    print_wire(wire)
    print("\n{processors} processors, load {load_before} before the start".format(**machine))
    return {**summary(trips, training, wire), **machine}


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Round trips and bytes on the wire of a center.")
    parser.add_argument("--samples", type=int, default=1500, help="round trips of each kind")
    parser.add_argument("--exchanges", type=int, default=20, help="exchanges whose bytes count")
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.samples, options.exchanges))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
