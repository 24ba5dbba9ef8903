"""Asked to stop, a center says goodbye; started again, it goes on; finished, it stays finished."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from abps_node.config import CenterConfig
from abps_node.discovery.directory import DirectoryDiscovery
from abps_node.exits import ExitCode
from abps_node.store.reader import Reader
from protocol.messages import Goodbye, Hello
from tests.support.center_processes import ROOT
from tests.support.player import Player
from tests.support.residents import WAIT_S, Resident, Residents, eventually
from tests.support.soundness import check_state, records
from tests.support.wards import ward_contract, ward_federation

ROUNDS = 6
LINGER_S = 1.5


async def meet(resident: Resident, member: CenterConfig) -> Player:
    """A good partner of the resident, who has said hello."""
    player = Player(member, resident.center)
    player.be_partner()
    await eventually(lambda: resident.endpoint)
    assert resident.endpoint is not None
    await player.connect(resident.endpoint)
    player.say(player.hello())
    await eventually(lambda: player.of(Hello))
    return player


async def end_of(resident: Resident) -> int:
    async with asyncio.timeout(WAIT_S):
        return await resident.task


async def test_stop_resume_finish(tmp_path: Path, residents: Residents) -> None:
    agreed = ward_contract({"rounds": ROUNDS}, {"linger_s": LINGER_S})
    layout = ward_federation(tmp_path / "f", ["amber", "crow"], agreed)
    center, member = layout.centers

    first = residents.start(center)
    player = await meet(first, member)
    await eventually(lambda: first.last_round() >= 2)
    os.kill(os.getpid(), signal.SIGTERM)  # the daemon is the only one in this loop
    assert await end_of(first) == ExitCode.STOPPED
    await eventually(lambda: player.of(Goodbye))
    assert not player.of(Goodbye)[0].finished
    stopped_after = first.last_round()
    assert 2 <= stopped_after < ROUNDS
    assert first.reader.status().condition == "stopped"
    assert not list((layout.directory / "cards").iterdir())
    check_state(center)
    await player.close()

    second = residents.start(center)
    player = await meet(second, member)
    assert await end_of(second) == ExitCode.OK
    assert [goodbye.finished for goodbye in player.of(Goodbye)][-1:] == [True]
    await player.close()
    incarnations = [record.incarnation for record in records(center)]
    assert incarnations == [1] * stopped_after + [2] * (ROUNDS - stopped_after)
    assert any(record.partners for record in records(center)[stopped_after:])
    check_state(center)

    # There is nothing left to do, and nobody left to tell.
    before, started = records(center), time.monotonic()
    third = residents.start(center)
    assert await end_of(third) == ExitCode.OK
    assert time.monotonic() - started < LINGER_S + 10.0
    assert records(center) == before
    status = third.reader.status()
    assert (status.incarnation, status.condition) == (3, "finished")


async def test_a_second_signal_changes_nothing(tmp_path: Path, residents: Residents) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "crow"], ward_contract({"rounds": 1000}))
    amber = residents.start(layout.centers[0])
    player = await meet(amber, layout.centers[1])
    await eventually(lambda: amber.last_round() >= 1)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await end_of(amber) == ExitCode.STOPPED
    check_state(layout.centers[0])
    await player.close()


async def test_a_signal_before_the_first_step_leaves_nothing_unawaited(
    tmp_path: Path, residents: Residents, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = DirectoryDiscovery.announce

    async def interrupted(self: DirectoryDiscovery, address: str, incarnation: int) -> None:
        await announce(self, address, incarnation)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)

    monkeypatch.setattr(DirectoryDiscovery, "announce", interrupted)
    layout = ward_federation(tmp_path / "f", ["amber", "crow"], ward_contract())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert await end_of(residents.start(layout.centers[0])) == ExitCode.STOPPED
        gc.collect()
    assert not [w for w in caught if "never awaited" in str(w.message)]


SIGNAL_WHILE_CLOSING = """
import signal, sys
from abps_node.store import Store
close = Store.close
def late(self, *, clean=True):
    signal.raise_signal(signal.SIGTERM)
    close(self, clean=clean)
Store.close = late
sys.argv = ["abps", "run", sys.argv[1]]
from abps_node.cli.main import run
run()
"""


def test_a_signal_while_the_state_is_closed_kills_nothing(tmp_path: Path) -> None:
    agreed = ward_contract({"rounds": 1}, {"min_peers": 0, "linger_s": 0.5})
    (center,) = ward_federation(tmp_path / "f", ["amber"], agreed).centers
    command = [sys.executable, "-c", SIGNAL_WHILE_CLOSING, str(center.path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
    assert Reader(center.state_dir).condition() == "finished"
