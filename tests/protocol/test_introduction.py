"""Greeting only whom one proposes to: few connections, the same rounds."""

from __future__ import annotations

from protocol.effects import CommitRound
from protocol.events import Reachable, Started, Unreachable
from protocol.messages import Hello, Propose
from protocol.record import RestCause
from tests.support.federations import check_at_rest, contract, network, records
from tests.support.one_center import OneCenter, sent


def lazy(policy: dict[str, object] | None = None, **pacing: object) -> OneCenter:
    agreed = contract({"kappa": 1, **(policy or {})}, greet="needed", **{"min_peers": 0, **pacing})
    it = OneCenter(agreed, roster="abcm")
    it.feed(Started())
    for peer in "abc":
        it.feed(Reachable(peer))
    return it


def test_nobody_is_greeted_before_there_is_something_to_say() -> None:
    it = lazy()
    it.wait(2.0)
    assert not it.sent(Hello)


def test_before_round_one_as_many_are_greeted_as_min_peers_lacks() -> None:
    it = lazy(min_peers=2)
    it.wait(0.1)
    greeted = it.sent(Hello)
    assert len(greeted) == 2


def test_the_hello_goes_before_the_proposal_and_the_proposal_after_the_answer() -> None:
    it = lazy()
    it.train()
    assert len(it.sent(Hello)) == 1 and not it.sent(Propose)
    peer = next(p for p in "abc" if it.sent(Hello, p))
    effects = it.hear(peer, it.hello(peer))
    (proposal,) = sent(effects, Propose, peer)
    assert proposal.session.acceptor_incarnation == 1


def test_whoever_does_not_answer_the_hello_costs_a_third_of_the_budget() -> None:
    it = lazy({"rounds": 1})
    it.train()
    it.wait(5.0)
    it.merge()
    record = it.last(CommitRound).record
    assert record.rest is not None and record.rest.cause is RestCause.ALL_UNREACHABLE
    assert [(p.session, p.outcome) for p in record.proposals_sent] == [("", "timeout")] * 3
    assert record.known == 3


def test_a_refusal_frees_the_place_at_once() -> None:
    it = lazy()
    it.train()
    peer = next(p for p in "abc" if it.sent(Hello, p))
    it.hear(peer, it.hello(peer, contract="f" * 64))
    assert len(it.sent(Hello)) == 2, "the next one is greeted"


def test_a_goal_filter_needs_all_cards_and_greets_all() -> None:
    it = lazy({"goal": "alignment", "tau_sim": -1.0})
    it.wait(0.1)
    assert {p for p in "abc" if it.sent(Hello, p)} == set("abc")


def test_a_peer_whose_address_was_taken_back_is_no_candidate_until_it_speaks() -> None:
    it = OneCenter(contract(), roster="am")
    it.meet("a")
    it.feed(Unreachable("a"))
    it.train()
    assert not it.sent(Propose)
    it.hear("a", it.hello("a", reply=False))
    assert it.node.center.peers["a"].is_candidate(1)


def test_a_federation_of_forty_meets_few_and_rarely_rests() -> None:
    names = [f"c{i:02d}" for i in range(40)]
    agreed = contract({"kappa": 1, "rounds": 6}, greet="needed")
    net = network("a", agreed)
    net = type(net)(agreed, names, net.utility, seed=4)
    net.start_all()
    assert net.run_until(net.all_exited, 300)
    check_at_rest(net)
    met = [len(a.disk.sessions) for a in net.actors.values()]
    rounds = [record for actor in net.actors.values() for record in records(actor)]
    rested = sum(record.rest is not None for record in rounds)
    assert len(rounds) == 240 and rested < 60, rested
    hellos = sum(": hello" in line for line in net.transcript)
    assert hellos < 40 * 39 / 2, "far from everybody with everybody"
    assert max(met) <= 40
