"""What all tests share: property tests draw the same examples in every run, without deadlines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("abps", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("abps")


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Whatever the test does to the root logger is undone."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)
