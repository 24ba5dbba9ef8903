"""A real broker for the tests of this folder, and centers that use it within the test's loop."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.broker import MosquittoBroker, mosquitto, prepare
from tests.support.broker_guests import Guests

USERS = ("north", "south", "west", "dashboard")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example's script makes."""
    if mosquitto() is None:
        pytest.skip("NO MOSQUITTO: the broker is not tested; `make services` installs it")
    folder = tmp_path_factory.mktemp("broker") / "prepared"
    prepare(folder, *USERS)
    return folder


@pytest.fixture
def still(prepared: Path, tmp_path: Path) -> Iterator[MosquittoBroker]:
    """A broker that has not been started, with files of its own."""
    folder = tmp_path / "broker"
    shutil.copytree(prepared, folder)
    broker = MosquittoBroker(folder)
    yield broker
    broker.stop()


@pytest.fixture
def broker(still: MosquittoBroker) -> MosquittoBroker:
    """A running one."""
    still.start()
    return still


@pytest.fixture
async def guests() -> AsyncIterator[Guests]:
    """Makes centers and dashboards; all are gone when the test ends."""
    made = Guests()
    yield made
    await made.close()
