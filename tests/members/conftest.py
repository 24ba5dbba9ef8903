"""Fixtures of the tests in which members come, go, and hide behind firewalls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.center_processes import CenterProcesses


@pytest.fixture
def processes() -> Iterator[CenterProcesses]:
    started = CenterProcesses()
    yield started
    started.close()
