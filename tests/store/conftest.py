"""The store on a local disk, and as if its disk were one that several machines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mounts import pretend


@pytest.fixture(params=["log", "rollback"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the store keeps its transactions whole."""
    if request.param == "rollback":
        pretend(monkeypatch, tmp_path, "nfs4")
    return str(request.param)
