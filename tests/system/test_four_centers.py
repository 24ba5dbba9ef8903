"""Four centers as processes of their own, and what is done to them: death, frost, slowness.

Whatever happens to single centers, every one ends within the time that the contract implies, its
state is whole at every moment, and afterwards no two ledgers disagree.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from abps_node.config import CenterConfig
from abps_node.exits import ExitCode
from protocol.contract import Contract
from protocol.record import RoundRecord
from tests.support.center_processes import CenterProcess, CenterProcesses, wait_until
from tests.support.soundness import check_pruned, check_state, disagreements, records
from tests.support.wards import ward_contract, ward_federation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NAMES = ("amber", "birch", "cedar", "dune")
DEATHS = {"intent": "2", "weights": "2", "model": "6", "commit": "6"}
FREEZE_S = 20.0
FACTOR = 20
STARTUP_S = 240.0
"""A process imports, loads and binds within this, even on a machine with better things to do."""
SLOW_STEP_S = 2.5
"""A local step of 60 ms of processor time, 20 times slower, on a machine that is busy, too."""
SLACK_S = 2.0
"""Ticks, commits and the queue for a processor, per round."""


@pytest.fixture
def processes() -> Iterator[CenterProcesses]:
    started = CenterProcesses()
    yield started
    started.close()


def contract(rounds: int, **pacing: Any) -> Contract:
    """Two partners a round; a local step of some 60 ms, so that 20 times as long is noticed."""
    return ward_contract(
        {"rounds": rounds, "kappa": 2},
        {"round_min_s": 0.4, "start_wait_s": 30.0, "linger_s": 60.0, **pacing},
        training={"epochs": 15, "batch_size": 8},
    )


def longest_round(agreed: Contract, train_s: float, credit_s: float) -> float:
    """No round lasts longer, whatever its peers do.

    Proposals share ``negotiation_s``; the last accepted of them opens an exchange that ends after
    ``exchange_s``; a session that a peer opens after the negotiation counts in the next round.
    """
    pacing = agreed.pacing
    gathered = train_s + pacing.negotiation_s + pacing.exchange_s + credit_s
    return max(pacing.round_min_s, gathered) + SLACK_S


def longest_run(agreed: Contract, train_s: float, lost_s: float = 0.0) -> float:
    """From the start of its process to the end of a center that all its peers outlive or await."""
    pacing = agreed.pacing
    rounds = agreed.policy.rounds * longest_round(agreed, train_s, credit_s=0.5)
    return STARTUP_S + pacing.start_wait_s + rounds + lost_s + pacing.linger_s


def check_durations(agreed: Contract, committed: Sequence[RoundRecord]) -> None:
    """Each round has kept to its bound; the time that the own loop was late is not counted."""
    for record in committed:
        spent = record.durations
        bound = longest_round(agreed, spent["train"], spent["credit"])
        assert spent["total"] <= bound, f"round {record.round}: {spent}"


def check_end(agreed: Contract, centers: Sequence[CenterConfig]) -> None:
    """All rounds done, every state whole, all ledgers settled and of one opinion."""
    for center in centers:
        check_state(center)
        check_pruned(center)
        committed = records(center)
        assert len(committed) == agreed.policy.rounds
        assert any(record.partners for record in committed)
        check_durations(agreed, committed)
    assert disagreements(centers) == []


def test_one_dies_one_freezes_one_is_slow(tmp_path: Path, processes: CenterProcesses) -> None:
    agreed = contract(rounds=18, min_peers=2)
    layout = ward_federation(tmp_path / "f", NAMES, agreed)
    mortal_center, frozen_center, slow_center, steady_center = layout.centers
    mortal = processes.start(mortal_center, "--die-at", "weights", "--in-round", "3")
    frozen = processes.start(frozen_center)
    slow = processes.start(slow_center, "--slow", str(FACTOR))
    steady = processes.start(steady_center)

    frozen.wait_for_round(2)
    frozen.send(signal.SIGSTOP)
    thaw_at = time.monotonic() + FREEZE_S
    frozen_in = frozen.last_round() + 1

    assert mortal.wait_for_end() == -signal.SIGKILL
    assert mortal.reader.status().condition == "dead"
    check_state(mortal_center)
    died_after = mortal.last_round()
    reborn = processes.start(mortal_center)

    steady.wait_for_event("peer-suspect", frozen_center.id)
    wait_until(lambda: time.monotonic() >= thaw_at, "thaw", 2 * FREEZE_S)
    assert frozen.last_round() == frozen_in - 1
    frozen.send(signal.SIGCONT)

    # The others await the slow one, so that all are bounded by it.
    bound = longest_run(agreed, train_s=SLOW_STEP_S, lost_s=FREEZE_S)
    for process in (reborn, frozen, slow, steady):
        assert process.wait_for_end(bound) == ExitCode.OK, process.said()[-2000:]
    check_end(agreed, layout.centers)

    # The dead one went on where it had stopped, and gave up what it had begun.
    incarnations = [record.incarnation for record in records(mortal_center)]
    assert incarnations == [1] * died_after + [2] * (agreed.policy.rounds - died_after)
    assert died_after >= 2
    assert reborn.reader.events(kind="sessions-aborted")

    # The frozen one was missed, came back, and blamed itself.
    check_return(steady, frozen_center.id)
    lags = {record.round: record.loop_lag_s for record in records(frozen_center)}
    assert max(lags.values()) > 0.9 * FREEZE_S
    assert max(lags, key=lambda number: lags[number]) in (frozen_in, frozen_in + 1)

    # The slow one slowed nobody.
    assert ended_rounds(steady) < ended_rounds(slow)


def check_return(process: CenterProcess, peer: str) -> None:
    """Every suspicion of the peer was followed by its return."""
    kinds = [
        event.kind
        for event in process.reader.events()
        if event.peer == peer and event.kind in ("peer-suspect", "peer-returned")
    ]
    assert kinds
    assert kinds == ["peer-suspect", "peer-returned"] * (len(kinds) // 2)


def ended_rounds(process: CenterProcess) -> float:
    """When the last round was committed."""
    at = process.reader.status().last_round_at
    assert at is not None
    return at


def test_all_die_at_chosen_and_at_random_instants(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    agreed = contract(rounds=14, min_peers=3)
    layout = ward_federation(tmp_path / "f", NAMES, agreed)
    # Those that need a partner for their death go first.
    first = [
        processes.start(center, "--die-at", instant, "--in-round", in_round)
        for center, (instant, in_round) in zip(layout.centers, DEATHS.items(), strict=True)
    ]
    assert ends_of(first, STARTUP_S) == [-signal.SIGKILL] * 4
    before = {center.id: survived(center) for center in layout.centers}
    # An intent may be for the next round, a trunk may be one that the next round still sends.
    assert before["amber"] in (0, 1) and before["birch"] in (1, 2)
    assert (before["cedar"], before["dune"]) == (5, 6), "before and after a commit"

    second = processes.start_all(layout.centers)
    for process in second:
        process.wait_for_round(before[process.center.id] + 1)
    instant = random.Random(time.time_ns()).uniform(0.0, 1.0)
    print(f"all are killed {instant:.3f} s later")
    killed_at = time.monotonic() + instant
    wait_until(lambda: time.monotonic() >= killed_at, "the instant")
    for process in second:
        process.send(signal.SIGKILL)
    assert ends_of(second, STARTUP_S) == [-signal.SIGKILL] * 4
    between = {center.id: survived(center) for center in layout.centers}

    third = processes.start_all(layout.centers)
    assert ends_of(third, longest_run(agreed, train_s=0.5)) == [ExitCode.OK] * 4
    check_end(agreed, layout.centers)
    for center in layout.centers:
        check_incarnations(center, [before[center.id], between[center.id], agreed.policy.rounds])


def ends_of(started: Sequence[CenterProcess], wait_s: float) -> list[int]:
    return [process.wait_for_end(wait_s) for process in started]


def survived(center: CenterConfig) -> int:
    """The rounds of a dead center, whose state must be whole."""
    check_state(center)
    return len(records(center))


def check_incarnations(center: CenterConfig, ends: Sequence[int]) -> None:
    """Each incarnation has committed the rounds up to its end, none twice, none lost."""
    expected = [
        number
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False), start=1)
        for _ in range(begin, end)
    ]
    assert [record.incarnation for record in records(center)] == expected
