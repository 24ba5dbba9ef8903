"""A golden transcript: three centers, one of them learns to stay alone.

Run with ``ABPS_REWRITE_GOLDEN=1`` after an intended change, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

from protocol.events import Coalition
from sim.network import Faults
from tests.support.federations import check_at_rest, contract, network

GOLDEN = Path(__file__).with_name("golden_story.txt")


def c_hurts_everybody(center: str, number: int, coalition: Coalition) -> float:
    return 0.80 + sum(-0.15 if peer == "c" else 0.03 for peer in sorted(coalition))


def test_the_round_log_reads_like_a_story() -> None:
    agreed = contract({"rounds": 4, "gamma": 0.05}, min_peers=2)
    net = network("abc", agreed, seed=8, utility=c_hurts_everybody, faults=Faults())
    net.start_all()
    assert net.run_until(net.all_exited, 60)
    check_at_rest(net)
    told = "\n".join(net.transcript) + "\n"
    if os.environ.get("ABPS_REWRITE_GOLDEN"):
        GOLDEN.write_text(told, encoding="utf-8")
    assert told == GOLDEN.read_text(encoding="utf-8")


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        net = network("abcd", contract({"kappa": 2}), seed=9, faults=Faults(0.1, 0.1, (0.001, 0.3)))
        net.start_all()
        net.run_until(net.all_exited, 300)
        stories.append(net.transcript)
    assert stories[0] == stories[1]
