from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.beliefs import Belief
from sim.methods.beliefs import Beliefs
from tests.support.strategies import beliefs

PRIOR = Belief(2.0, 3.0, 0)


@given(st.lists(st.tuples(st.integers(0, 20), beliefs()), max_size=60))
def test_it_is_a_dictionary_that_knows_its_arrays(entries: list[tuple[int, Belief]]) -> None:
    held, plain = Beliefs(), dict[int, Belief]()
    for peer, belief in entries:
        held.put(peer, belief)
        plain[peer] = belief
    assert list(held.items()) == sorted(plain.items())
    assert len(held) == len(plain)
    for peer in range(22):
        assert (peer in held) == (peer in plain)
        assert held.about(peer, PRIOR) == plain.get(peer, PRIOR)
    assert held.peers.tolist() == list(plain)
    assert held.counts.tolist() == [belief.n for belief in plain.values()]
    assert held.means.tolist() == [belief.mean for belief in plain.values()]
