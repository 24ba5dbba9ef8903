"""One small cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.slurm_cluster import Cluster, slurm_missing


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Cluster]:
    if (reason := slurm_missing()) is not None:
        pytest.skip(reason)
    cluster = Cluster(nodes=4)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Four nodes n1 … n4 of four cores, all idle; commands of Slurm find it."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, _cluster.environment[name])
    _cluster.repair()
    yield _cluster
    _cluster.cancel_all()
