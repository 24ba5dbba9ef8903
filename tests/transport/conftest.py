"""Fixtures of the transport tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.stations import Stations


@pytest.fixture
async def stations() -> AsyncIterator[Stations]:
    world = Stations()
    yield world
    await world.close()
