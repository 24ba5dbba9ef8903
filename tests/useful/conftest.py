"""One trained center for all tests of what a model is good for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.trained_center import train_center


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its center.toml. Nobody may change anything there."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    path = train_center(tmp_path_factory.mktemp("trained"))
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)
    return path
