"""Isolation of all centers: by cause, by round, who never found anybody, and what explains it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.config import CenterConfig
from abps_node.store.views import RoundHead
from launch.layout import FederationLayout
from launch.view import isolation
from launch.view.isolation import by_round, explained_by_others
from protocol.beliefs import Belief
from protocol.effects import CommitRound
from protocol.record import ProposalRecord, RestCause
from tests.support import half_dead as made
from tests.support.command_line import abps
from tests.support.layouts import small_federation
from tests.support.records import Chronicle

HEADS = st.lists(
    st.builds(
        lambda number, cause: RoundHead(number, 0.0, int(cause is None), cause),
        st.integers(1, 60),
        st.one_of(st.none(), st.sampled_from(RestCause)),
    ),
    max_size=40,
)


@given(HEADS, st.integers(1, 12))
def test_bins_hold_every_round_once(heads: list[RoundHead], most: int) -> None:
    bins = by_round(heads, most)
    assert len(bins) <= most
    assert sum(each.committed for each in bins) == len(heads)
    total = sum((Counter(each.causes) for each in bins), Counter[RestCause]())
    assert total == Counter(head.cause for head in heads if head.cause is not None)
    edges = [(each.first, each.last) for each in bins]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(edges))
    if heads:
        assert (edges[0][0], edges[-1][1]) == (1, max(head.round for head in heads))


def rejected(center: CenterConfig) -> CommitRound:
    """A round in which «judge» has rejected the center by its belief, «picky» by its filter."""
    commit = Chronicle(center.id, center.federation.contract).resting(
        RestCause.MIXED, "2 attempts: 1 belief, 1 filter"
    )
    sent = [
        ProposalRecord(peer=peer, session="", outcome="rejected", reason=reason)
        for peer, reason in (("judge", "belief"), ("picky", "filter"), ("other", "busy"))
    ]
    record = commit.record.model_copy(update={"proposals_sent": sent})
    return CommitRound(**{**vars(commit), "record": record})


def test_who_rejects_is_named_with_what_it_believes(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["judge", "victim"], rounds=9)
    judge, victim = layout.centers
    chronicle = Chronicle(judge.id, judge.federation.contract, peers=("victim",))
    made.write(judge, [chronicle.with_partners({"victim": -0.08})])
    made.write(victim, [rejected(victim)])
    (why,) = isolation.collect(layout).whys()
    assert (why.center, why.cause, why.rounds, why.last) == ("victim", RestCause.MIXED, 1, 1)
    assert why.explanation == "2 attempts: 1 belief, 1 filter"
    assert why.others == (
        "rejected by the belief of judge (mean 0.367, n 1); rejected by the filter of picky"
    )


def test_a_judge_whose_state_is_not_here_is_named_alone(tmp_path: Path) -> None:
    (center, _) = small_federation(tmp_path / "fed").centers
    record = rejected(center).record
    assert explained_by_others(center.id, record, {"judge": {"x": Belief()}}) == (
        "rejected by the belief of judge; rejected by the filter of picky"
    )


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return made.half_dead(tmp_path / "fed")


def test_people_see_causes_rounds_and_who_never_found_anybody(layout: FederationLayout) -> None:
    outcome = abps("launch", "isolation", layout.directory)
    assert (outcome.code, outcome.err) == (0, "")
    out = outcome.out
    assert "in 9 of 20 rounds (45 %) of 6 centers there was no partner, in 4 of them by" in out
    assert "Never found a partner: 2 centers\n  choosy: 4 rounds, 4 below-threshold\n" in out
    assert "why below-threshold <b>&" in out
    assert "broken: " in out and "is damaged or not a state file" in out
    assert "Not begun: absent" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert rows["below-threshold"] == ["1", "1", "1", "1"]
    assert rows["committed"] == ["6", "6", "5", "3"]


def test_json(layout: FederationLayout) -> None:
    found = json.loads(abps("launch", "isolation", layout.directory, "--json").out)
    assert (found["rounds"], found["isolated"], found["intentional"]) == (20, 9, 4)
    assert found["totals"]["no-peers"] == {"rounds": 4, "centers": 1, "intentional": False}
    assert found["by_round"][0] == {
        "round": 1, "committed": 6, "causes": {"below-threshold": 1, "no-peers": 1},
    }  # fmt: skip
    assert found["never_found_a_partner"] == ["choosy", "lonely"]
    assert list(found["unreadable"]) == ["broken"]
    assert found["not_begun"] == ["absent"]


def test_nothing_has_begun(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    out = abps("launch", "isolation", layout.directory).out
    assert out == "made: no round is committed yet.\nNot begun: far, near\n"


def test_nobody_was_alone(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    for center in layout.centers:
        made.write(center, made.some(center, 2))
    out = abps("launch", "isolation", layout.directory).out
    assert out.startswith("made: 2 centers, and a partner in each of 4 rounds.\n")
