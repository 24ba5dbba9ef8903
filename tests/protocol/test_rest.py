"""Every cause of a rest, forced in a whole federation, with the numbers that explain it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.events import Coalition
from protocol.record import RestCause, RestRecord
from protocol.rest import RestFacts, classify, diagnose
from sim.network import Faults, Network
from tests.support.federations import contract, network, records


def rest_of(net: Network, name: str, number: int) -> RestRecord:
    rest = records(net.actors[name])[number - 1].rest
    assert rest is not None, records(net.actors[name])[number - 1]
    assert rest.intentional == (rest.cause in ("filter-empty", "below-threshold"))
    return rest


def finish(net: Network) -> None:
    assert net.run_until(net.all_exited, 900), net.transcript[-30:]


def everybody_hurts(center: str, number: int, coalition: Coalition) -> float:
    return 0.9 - 0.2 * len(coalition)


def test_no_peers() -> None:
    net = network("ab", contract({"rounds": 1}))
    net.start("a")
    net.run_until(lambda: net.actors["a"].exit is not None, 200)
    rest = rest_of(net, "a", 1)
    assert rest.cause is RestCause.NO_PEERS
    assert rest.counts["known"] == 0 and rest.counts["roster"] == 1
    assert rest.explanation == "none of the 1 other members has been met"
    (waited,) = [n.text for n in net.actors["a"].notes if n.kind == "start-wait-over"]
    assert waited == "starting with 0 of 1 peers after 5 s; not met: b"


def test_filter_empty_names_threshold_and_best_score() -> None:
    policy = {"tau_sim": -0.05, "goal": "alignment", "rounds": 2}
    cards = {"a": (0.1, 5.0), "b": (0.3, 5.0)}
    net = network("ab", contract(policy), cards=cards)
    net.start_all()
    finish(net)
    rest = rest_of(net, "a", 1)
    assert rest.cause is RestCause.FILTER_EMPTY
    assert rest.counts["before_filter"] == 1 and rest.counts["after_filter"] == 0
    assert "alignment filter: threshold -0.0500, best score -0.2000 (b)" in rest.explanation


def test_below_threshold_names_the_best_bound() -> None:
    net = network("ab", contract({"gamma": 0.0, "rounds": 4}), utility=everybody_hurts)
    net.start_all()
    finish(net)
    assert records(net.actors["a"])[0].partners, "first they have to learn it"
    rest = rest_of(net, "a", 2)
    assert rest.cause is RestCause.BELOW_THRESHOLD
    assert rest.counts["admissible"] == 0
    assert "best UCB 0.3333 (b) is below 0.5" in rest.explanation


def test_all_unreachable_when_the_only_peer_is_dead() -> None:
    net = network("ab", contract({"rounds": 6}))
    net.start_all()
    net.run_until(lambda: len(records(net.actors["a"])) >= 1, 20, step=0.05)
    net.crash("b")
    net.run_until(lambda: net.actors["a"].exit is not None, 200)
    causes = {r.round: r.rest.cause for r in records(net.actors["a"]) if r.rest is not None}
    assert set(causes.values()) == {RestCause.ALL_UNREACHABLE}
    last = rest_of(net, "a", 6)
    assert "every known peer (1) is suspect" in last.explanation


def test_all_busy_when_the_only_peer_is_not_ready() -> None:
    net = network("ab", contract({"rounds": 1}), train_s={"a": 0.05, "b": 5.0})
    net.start_all()
    finish(net)
    rest = rest_of(net, "a", 1)
    assert rest.cause is RestCause.ALL_BUSY
    assert rest.counts["attempts_busy"] == 1


def test_peers_finished() -> None:
    net = network("ab", contract({"rounds": 4}), train_s={"a": 0.05, "b": 2.0})
    net.start_all()
    finish(net)
    rest = rest_of(net, "b", 4)
    assert rest.cause is RestCause.PEERS_FINISHED
    assert rest.counts["finished"] == 1


def test_rejected_by_filter_of_the_other() -> None:
    policy = {"tau_sim": -0.05, "rounds": 1}
    cards = {"a": (0.1, 5.0), "b": (0.3, 5.0)}
    net = network("ab", contract(policy), cards=cards, goals={"a": "none", "b": "alignment"})
    net.start_all()
    finish(net)
    assert rest_of(net, "a", 1).cause is RestCause.REJECTED_BY_FILTER
    assert rest_of(net, "b", 1).cause is RestCause.FILTER_EMPTY


def test_rejected_by_belief_of_the_other() -> None:
    def only_a_gains(center: str, number: int, coalition: Coalition) -> float:
        return 0.7 + (0.05 if center == "a" else -0.2) * len(coalition)

    net = network("ab", contract({"gamma": 0.0, "rounds": 4}), utility=only_a_gains)
    net.start_all()
    finish(net)
    assert rest_of(net, "a", 3).cause is RestCause.REJECTED_BY_BELIEF
    assert rest_of(net, "b", 3).cause is RestCause.BELOW_THRESHOLD


def test_exchange_failed_when_no_trunk_comes() -> None:
    net = network("ab", contract({"rounds": 1}), faults=Faults(delay_s=(0.05, 0.06)))
    net.start_all()

    def promised() -> bool:
        return any(row.state == "accepted" for row in net.actors["b"].disk.sessions.values())

    assert net.run_until(promised, 20, step=0.005)
    net.crash("a")
    net.run_until(lambda: bool(records(net.actors["b"])), 60)
    rest = rest_of(net, "b", 1)
    assert rest.cause is RestCause.EXCHANGE_FAILED
    assert rest.counts["attempts_exchange-failed"] == 1


def test_mixed_when_one_is_silent_and_one_declines() -> None:
    policy = {"rounds": 1, "tau_sim": -0.05}
    cards = {"a": (0.1, 5.0), "b": (0.9, 5.0), "c": (0.1, 5.0)}
    goals = {"a": "none", "b": "alignment", "c": "none"}
    net = network("abc", contract(policy, min_peers=2), seed=2, cards=cards, goals=goals)
    net.start_all()
    net.run_until(lambda: net.actors["a"].node.center.phase == "training", 20, step=0.01)  # type: ignore[union-attr]
    net.crash("c")
    net.run_until(lambda: bool(records(net.actors["a"])), 60)
    rest = rest_of(net, "a", 1)
    assert rest.cause is RestCause.MIXED
    assert rest.counts["attempts_filter"] == 1 and rest.counts["attempts_unreachable"] == 1
    assert rest.explanation == "2 attempts: 1 filter, 1 unreachable"


def test_a_bad_network_gives_causes_that_are_not_intentional() -> None:
    net = network("abc", contract({"rounds": 6}), faults=Faults(loss=0.4))
    net.start_all()
    net.run_until(net.all_exited, 900)
    causes = [r.rest for a in net.actors.values() for r in records(a) if r.rest is not None]
    assert causes and not any(rest.intentional for rest in causes)


FACTS = RestFacts(
    roster=3,
    known=3,
    unavailable=0,
    finished=0,
    refused=0,
    before_filter=3,
    after_filter=3,
    admissible=3,
    exploratory=False,
    outcomes=(),
    goal="homogeneity",
    threshold=0.5,
    scores={"b": 0.1},
    tau_acc=0.5,
    ucb={"b": 0.4},
)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"known": 0}, "no-peers"),
        ({"before_filter": 0, "unavailable": 3}, "all-unreachable"),
        ({"before_filter": 0, "finished": 3}, "peers-finished"),
        ({"before_filter": 0, "finished": 1, "unavailable": 2}, "mixed"),
        ({"after_filter": 0, "admissible": 0}, "filter-empty"),
        ({"admissible": 0}, "below-threshold"),
        ({"admissible": 0, "exploratory": True, "outcomes": ("belief",)}, "rejected-by-belief"),
        ({"outcomes": ("unreachable", "unreachable")}, "all-unreachable"),
        ({"outcomes": ("busy",)}, "all-busy"),
        ({"outcomes": ("finished",)}, "peers-finished"),
        ({"outcomes": ("filter", "filter")}, "rejected-by-filter"),
        ({"outcomes": ("exchange-failed",)}, "exchange-failed"),
        ({"outcomes": ("exchange-failed", "busy")}, "exchange-failed"),
        ({"outcomes": ("filter", "busy")}, "mixed"),
        ({"outcomes": ("other",)}, "mixed"),
        ({"outcomes": ()}, "mixed"),
        ({"before_filter": 0, "outcomes": ("exchange-failed",)}, "exchange-failed"),
    ],
)
def test_precedence(changes: dict[str, object], cause: str) -> None:
    rest = diagnose(replace(FACTS, **changes))  # type: ignore[arg-type]
    assert rest.cause == cause
    assert rest.explanation


def test_classes_of_outcomes() -> None:
    assert classify("timeout", None) == classify("undeliverable", None) == "unreachable"
    assert classify("rejected", "not-ready") == classify("rejected", "busy") == "busy"
    assert classify("rejected", "belief") == "belief"
    assert classify("rejected", "stale-session") == classify("withdrawn", None) == "other"
