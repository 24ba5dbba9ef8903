"""Members that misuse what they may do: each is refused, bounded, recorded, and costs little.

What each attack costs is measured: rounds go on within the bound that the contract implies, and
memory stays bounded. With ``ABPS_COSTS=FILE`` the figures are appended to that file.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from abps_node.identity import load_own_keys
from abps_node.transport import Undeliverable
from protocol import codec
from protocol.beliefs import Belief
from protocol.goal import card_length
from protocol.messages import (
    Accept,
    CardMessage,
    Done,
    Hello,
    Message,
    Ping,
    Pong,
    Propose,
    Refuse,
    RefuseReason,
    Weights,
)
from protocol.record import RoundRecord
from protocol.trunk import pack
from tests.support.player import Player
from tests.support.residents import eventually
from tests.support.scene import Play, Raw, Scene, introduced, peak_memory

pytestmark = pytest.mark.timeout(600)

SLACK_S = 2.0
"""Of a busy machine, per round."""
MEMORY_BYTES = 64e6
"""No attack here may cost the victim more, beyond what it had before."""
HALF_OPEN = 2000
PROPOSALS = 3000


@pytest.fixture(autouse=True)
def cost(scene: Scene, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the attack: no round beyond its bound, memory bounded, and the figures on record."""
    before, memory = scene.target.last_round(), peak_memory(scene.target)
    cpu, begun = processor_s(scene), time.monotonic()
    yield
    seconds = time.monotonic() - begun
    later = [entry.record for entry in scene.target.reader.rounds(since=before)]
    gained = peak_memory(scene.target) - memory
    longest = max(record.durations["total"] for record in later)
    if "ABPS_COSTS" in os.environ:
        figures = {
            "attack": request.node.name,
            "seconds": round(seconds, 1),
            "rounds": len(later),
            "mean_round_s": round(sum(r.durations["total"] for r in later) / len(later), 3),
            "longest_round_s": round(longest, 3),
            "memory_gain_mb": round(gained / 1e6, 1),
            "processor_share": round((processor_s(scene) - cpu) / seconds, 3),
        }
        with Path(os.environ["ABPS_COSTS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")
    assert longest <= longest_round(scene), [r.durations for r in later]
    assert gained < MEMORY_BYTES


def longest_round(scene: Scene) -> float:
    """Proposals share ``negotiation_s``; the last accepted opens an exchange of ``exchange_s``."""
    pacing = scene.target.center.federation.contract.pacing
    return max(pacing.round_min_s, pacing.negotiation_s + pacing.exchange_s) + SLACK_S


def processor_s(scene: Scene) -> float:
    """Seconds of processor that the target has used."""
    fields = Path(f"/proc/{scene.target.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def rounds_with(scene: Scene, player: Player) -> list[RoundRecord]:
    """Rounds in which the player was a partner, or failed as one."""
    return [
        entry.record
        for entry in scene.target.reader.rounds()
        if any(p.peer == player.id for p in (*entry.record.partners, *entry.record.failed))
    ]


def events(scene: Scene, kind: str, player: Player) -> list[Any]:
    return [each for each in scene.target.reader.events(kind=kind) if each.peer == player.id]


# Words --------------------------------------------------------------------------------------------


def held_off(scene: Scene, player: Player) -> bool:
    """Whether the target was too slow to read it all, and ended the connection."""
    return bool(events(scene, "flood", player))


async def test_a_calm_minute_to_compare_with(scene: Scene) -> None:
    await scene.goes_on()
    await scene.goes_on()


async def test_a_flood_of_proposals(scene: Scene, play: Play) -> None:
    player = await play()
    await introduced(player)
    said = 0

    def flooded() -> bool:
        nonlocal said
        with suppress(Undeliverable):  # the queue is full; more comes at the next look
            for _ in range(100):
                player.propose(said + 1)
                said += 1
        return said >= PROPOSALS or held_off(scene, player)

    await eventually(flooded)
    await eventually(lambda: events(scene, "rate-limited", player))
    await scene.goes_on()
    for entry in scene.target.reader.rounds():
        assert len(entry.record.proposals_received) <= 512
    assert len(rounds_with(scene, player)) <= 3, "one session, then it waits for its turn"


async def test_accept_and_stall(scene: Scene, play: Play) -> None:
    """It accepts what it is asked, and never sends: each time it is left alone twice as long."""
    player = await play()

    def answer(message: Message) -> None:
        if isinstance(message, Propose):
            player.say(Accept(player.incarnation, message.session, message.round))

    player.on_message = answer
    await introduced(player)
    await eventually(lambda: len(events(scene, "exchange-timeout", player)) >= 3)
    await scene.goes_on()
    stalled = [record.round for record in rounds_with(scene, player)]
    gaps = [later - earlier for earlier, later in pairwise(stalled)]
    assert len(stalled) >= 3
    assert all(gap > 2**place for place, gap in enumerate(gaps[:4])), stalled
    assert player.id not in scene.target.reader.beliefs(), "a stall changes no belief"


async def test_a_card_that_changes_all_the_time(scene: Scene, play: Play) -> None:
    player = await play()
    await introduced(player)
    sequence = player.incarnation

    def shown() -> bool:
        nonlocal sequence
        sequence += 1
        values = (sequence % 97 / 100,) * card_length(player.contract)
        player.say(player.hello(card=CardMessage(sequence, values)))
        refused = [e for e in events(scene, "card-changed", player) if "more than once" in e.text]
        return len(refused) >= 2 and len(events(scene, "card-renewed", player)) >= 2

    begun = scene.target.last_round()
    await eventually(shown)
    await scene.goes_on()
    rounds = scene.target.last_round() - begun + 2
    assert len(events(scene, "card-renewed", player)) <= rounds
    assert sequence > 2 * rounds, "it changed more often than the target took it"


async def test_a_second_process_with_the_same_key(scene: Scene, play: Play) -> None:
    older = await play()
    await introduced(older)
    newer = Player(older.member, scene.target.center)
    newer.incarnation = 2
    await newer.connect(scene.endpoint)
    await introduced(newer)
    await eventually(lambda: events(scene, "peer-restarted", older))

    def refused() -> list[Refuse]:
        older.say(Ping(older.incarnation))
        return [r for p in (older, newer) for r in p.of(Refuse)]

    await eventually(refused)
    assert {r.reason for r in refused()} == {RefuseReason.SUPERSEDED}
    assert {r.known_incarnation for r in refused()} == {2}
    newer.say(Ping(2))
    await eventually(lambda: [*newer.of(Pong), *older.of(Pong)])
    await scene.goes_on()
    await newer.close()


# Trunks -------------------------------------------------------------------------------------------


def filled(player: Player, value: float) -> bytes:
    return pack(np.full(player.layout.size, value, dtype=np.float32), "float32")


@pytest.mark.parametrize("value", [0.0, 1e38, 1e-42], ids=["zeros", "1e38", "denormals"])
async def test_trunks_of_one_number(scene: Scene, play: Play, value: float) -> None:
    player = await play()
    player.be_partner(payload=filled(player, value))
    await is_refused(scene, player, "trunk-norm", credits=2)


@pytest.mark.parametrize(
    "claim",
    [{"round": 2**53}, {"staleness": 2**53}, {"round": 99_999, "staleness": 2}],
    ids=["round", "staleness", "sum"],
)
async def test_claims_of_rounds_that_cannot_be(
    scene: Scene, play: Play, claim: dict[str, int]
) -> None:
    player = await play()
    player.be_partner(**claim)
    await is_refused(scene, player, "trunk-claim", credits=2)


async def test_a_claim_of_absurd_size_weighs_nothing(scene: Scene, play: Play) -> None:
    player = await play()
    player.be_partner(size=2**53)
    await introduced(player)
    await eventually(lambda: any(r.partners for r in rounds_with(scene, player)))
    await scene.goes_on()
    for record in rounds_with(scene, player):
        for partner in record.partners:
            if partner.peer == player.id:
                assert partner.size == 2**53
                assert partner.weight == pytest.approx(1 / (1 + len(record.partners)))


async def test_the_own_trunk_echoed(scene: Scene, play: Play) -> None:
    player = await play()

    def answer(message: Message) -> None:
        match message:
            case Propose(session=session):
                player.say(Accept(player.incarnation, session, message.round))
            case Weights(session=session, payload=payload):
                player.say(Done(player.incarnation, session, True, ""))
                player.say(player.weights(session, payload=bytes(payload)))
            case _:
                pass

    player.on_message = answer
    await is_refused(scene, player, "trunk-echo", credits=2)


async def test_an_old_trunk_replayed(scene: Scene, play: Play) -> None:
    """The first time it is a trunk like any other; from then on it is a lie."""
    player = await play()
    said = 0

    def answer(message: Message) -> None:
        nonlocal said
        match message:
            case Propose(session=session):
                player.say(Accept(player.incarnation, session, message.round))
            case Weights(session=session):
                said += 1
                player.say(Done(player.incarnation, session, True, ""))
                player.say(player.weights(session, round=said))
            case _:
                pass

    player.on_message = answer
    await introduced(player)
    await eventually(lambda: len(scene.refusals("trunk-replay", player.id, "trunk-refused")) >= 2)
    await scene.goes_on()
    first, *later = [c for c in scene.target.reader.credits() if c.peer == player.id]
    assert first.phi is not None
    assert {(credit.phi, credit.phi_bar) for credit in later} == {(None, 0.0)}


async def is_refused(scene: Scene, player: Player, reason: str, credits: int) -> None:
    """Each such trunk is a credit of 0 in a committed round, until nobody asks for more."""
    await introduced(player)

    def earned() -> list[tuple[float | None, float]]:
        every = scene.target.reader.credits()
        return [(credit.phi, credit.phi_bar) for credit in every if credit.peer == player.id]

    await eventually(lambda: len(earned()) >= credits)
    await player.close()
    await scene.goes_on()
    assert set(earned()) == {(None, 0.0)}
    count = len(earned())
    assert scene.target.reader.beliefs()[player.id] == Belief(1.0, 1.0 + count, count)
    assert scene.refusals(reason, player.id, "trunk-refused")


# Connections --------------------------------------------------------------------------------------


async def test_half_open_connections(scene: Scene, play: Play) -> None:
    """Two thousand that say nothing: only so many are kept, and who is connected goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, HALF_OPEN + 500)), hard))
    host, _, port = scene.endpoint.removeprefix("tcp://").rpartition(":")
    silent: list[socket.socket] = []
    kept = 64 + 8 * (len(scene.target.center.federation.roster) - 1)
    try:
        for _ in range(HALF_OPEN):
            with suppress(BrokenPipeError, ConnectionResetError):  # cut off at once
                silent.append(socket.create_connection((host, int(port)), timeout=60))
        assert len(silent) > 2 * kept
        await scene.goes_on()
        # libzmq accepts before it is told to cut: how many are open at once depends on the machine.
        await eventually(lambda: descriptors(scene) < kept)
    finally:
        for each in silent:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await eventually(lambda: scene.refusals("too-many-connections", ""))
    await introduced(await play())


def descriptors(scene: Scene) -> int:
    return len(list(Path(f"/proc/{scene.target.pid}/fd").iterdir()))


async def test_a_slow_reader_that_never_drains(scene: Scene, raw: Raw) -> None:
    """It asks without end and reads nothing: what waits for it is bounded, nobody else waits."""
    member = scene.next_attacker()
    player = Player(member, scene.target.center)
    context: zmq.Context[Any] = zmq.Context()
    client = context.socket(zmq.DEALER)
    keys = load_own_keys(member)
    client.setsockopt(zmq.LINGER, 0)
    client.setsockopt(zmq.RCVHWM, 1)
    client.setsockopt(zmq.RCVBUF, 4096)
    client.curve_publickey, client.curve_secretkey = keys.public.encode(), keys.secret.encode()
    client.curve_serverkey = scene.target_key.encode()
    client.connect(scene.endpoint)
    frame = codec.encode(player.hello())

    def stuck() -> bool:
        with suppress(zmq.Again):
            for _ in range(20):
                client.send(frame, zmq.NOBLOCK)
        return waiting_bytes(scene) > 100_000

    try:
        await eventually(stuck)
        await scene.goes_on()
    finally:
        client.close()
        context.term()
    await eventually(lambda: waiting_bytes(scene) < 100_000)


def waiting_bytes(scene: Scene) -> int:
    """The most that waits in the kernel on one connection of the target's port, to be sent."""
    port = int(scene.endpoint.rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    queues = [line.split() for line in lines]
    return max(
        (int(q[4].split(":")[0], 16) for q in queues if int(q[1].split(":")[1], 16) == port),
        default=0,
    )


async def test_hellos_without_end(scene: Scene, play: Play) -> None:
    """Each asks for an answer; the rate of the contract bounds how many get one."""
    player = await play()
    await introduced(player)
    frame = codec.encode(player.hello())
    said = 0

    def flooded() -> bool:
        nonlocal said
        with suppress(Undeliverable):
            for _ in range(100):
                player.send(frame)
                said += 1
        return said >= 5000 or held_off(scene, player)

    begun = time.monotonic()
    await eventually(flooded)
    await eventually(lambda: events(scene, "rate-limited", player))
    await scene.goes_on()
    rate = player.contract.pacing.messages_per_s
    assert len(player.of(Hello)) <= rate * (time.monotonic() - begun + 2) + 1
