"""Beliefs are nothing but the fold of the credits, whatever the rounds were."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from abps_node.store import Store
from abps_node.store.reader import Reader
from tests.support.records import Chronicle, make_contract

PEERS = ("a", "b", "c", "d")
PHI = st.none() | st.floats(-0.5, 0.5, allow_nan=False)
ROUND = st.dictionaries(st.sampled_from(PEERS), PHI, max_size=3)


@settings(max_examples=40)
@given(rounds=st.lists(ROUND, max_size=12), restarts=st.sets(st.integers(0, 11), max_size=3))
def test_beliefs_equal_the_fold_over_all_credits(
    rounds: list[dict[str, float | None]], restarts: set[int]
) -> None:
    contract = make_contract()
    chronicle = Chronicle(contract=contract, peers=PEERS)
    with tempfile.TemporaryDirectory() as directory:
        state_dir = Path(directory)
        store = Store.open(state_dir, "here", contract)
        store.begin_incarnation()
        for number, partners in enumerate(rounds):
            if number in restarts:
                store.close()
                store = Store.open(state_dir, "here", contract)
                chronicle.incarnation = store.begin_incarnation()
            commit = chronicle.with_partners(partners) if partners else chronicle.resting()
            store.commit_round(commit)
        recovered = store.recover()
        store.close()

        reader = Reader(state_dir)
        assert reader.folded_beliefs() == reader.beliefs() == recovered.beliefs
        assert recovered.beliefs == chronicle.beliefs
        assert len(reader.credits()) == sum(map(len, rounds))
        assert all(credit.phi_bar == 0 for credit in reader.credits() if credit.phi is None)
        assert recovered.last_round == len(rounds) == len(reader.rounds())
