"""Fixtures of the tests of what a Prometheus server is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.residents import Residents


@pytest.fixture
async def residents() -> AsyncIterator[Residents]:
    started = Residents()
    yield started
    await started.close()
