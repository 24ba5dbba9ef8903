"""Seeds by purpose: a redo repeats itself, two purposes never share a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.randomness import derive_rng, derive_seed

_labels = st.text(max_size=10) | st.integers(0, 1000)


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0) == 3456079177858693020
    assert derive_seed(1, "rank", 12) == 5168818466748408856


@given(st.integers(0, 2**63 - 1), st.lists(_labels, max_size=4))
def test_a_redo_repeats_itself(seed: int, parts: list[str | int]) -> None:
    assert derive_seed(seed, *parts) == derive_seed(seed, *parts)
    assert 0 <= derive_seed(seed, *parts) < 2**63
    assert derive_rng(seed, *parts).random() == derive_rng(seed, *parts).random()


def test_neighboring_labels_give_unrelated_seeds() -> None:
    labels = [
        (seed, round, purpose) for seed in range(20) for round in range(20) for purpose in "ab"
    ]
    assert len({derive_seed(*label) for label in labels}) == len(labels)
    assert derive_seed(1, 23) != derive_seed(12, 3), "labels do not run into each other"
    assert derive_seed(1, "2", "3") != derive_seed(1, "23")
