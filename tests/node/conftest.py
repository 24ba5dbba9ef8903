"""Fixtures of the tests with real daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.center_processes import CenterProcesses
from tests.support.residents import Residents


@pytest.fixture
def processes() -> Iterator[CenterProcesses]:
    started = CenterProcesses()
    yield started
    started.close()


@pytest.fixture
async def residents() -> AsyncIterator[Residents]:
    started = Residents()
    yield started
    await started.close()
