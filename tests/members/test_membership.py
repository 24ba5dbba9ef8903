"""Who is a member at a moment, from the roster and the changes: pure, so for any order of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from abps_node.config_files import Member
from abps_node.membership import Change, holder, membership

KEYS = [f"{number:040d}" for number in range(6)]
IDS = ["a", "b", "c"]

rosters = st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(
    lambda names: [Member(id=n, public_key=KEYS[IDS.index(n)]) for n in names]
)


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Every key belongs to one center, as the command sees to."""
    found = []
    for place in range(draw(st.integers(0, 6))):
        number = draw(st.integers(0, 5))
        action = draw(st.sampled_from(["add", "revoke", "leave"]))
        until = draw(st.none() | st.floats(0, 20)) if action == "add" else None
        found.append(
            Change(
                at=float(place),
                action=action,  # type: ignore[arg-type]
                id=IDS[number % 3],
                public_key=None if action == "leave" else KEYS[number],
                until=until,
            )
        )
    return found


@given(rosters, changes(), st.floats(0, 30))
def test_a_revoked_key_never_counts_and_an_added_one_always_until_its_end(
    roster: list[Member], made: list[Change], now: float
) -> None:
    found = membership(roster, made, now)
    for key in KEYS:
        touching = [c for c in made if c.public_key == key]
        if touching and touching[-1].action == "revoke":
            assert holder(found, key) is None
        later = made[made.index(touching[-1]) :] if touching else made
        ended = any(c.until is not None and c.id == IDS[KEYS.index(key) % 3] for c in later[1:])
        if touching and touching[-1].action == "add" and not ended:
            assert holder(found, key) == touching[-1].id
    owners = [key for keys in found.keys.values() for key in keys]
    assert len(owners) == len(set(owners))
    assert not found.revoked & found.keys.keys()
    assert found.keys.keys() | found.revoked >= {m.id for m in roster}
    assert found.changes_at is None or found.changes_at > now


@given(rosters, changes(), st.floats(0, 30))
def test_nothing_changes_before_the_moment_that_is_named(
    roster: list[Member], made: list[Change], now: float
) -> None:
    found = membership(roster, made, now)
    if found.changes_at is None:
        assert membership(roster, made, now + 1000.0).keys == found.keys
    else:
        assert membership(roster, made, (now + found.changes_at) / 2).keys == found.keys
        assert membership(roster, made, found.changes_at).keys != found.keys


def test_both_keys_count_during_an_overlap_the_newest_first() -> None:
    roster = [Member(id="a", public_key=KEYS[0], address="tcp://h:1")]
    rotated = [Change(at=1.0, action="add", id="a", public_key=KEYS[3], until=10.0)]
    assert membership(roster, rotated, 9.0).keys == {"a": (KEYS[3], KEYS[0])}
    after = membership(roster, rotated, 10.0)
    assert after.keys == {"a": (KEYS[3],)} and after.addresses == {"a": "tcp://h:1"}
    (own,) = membership(roster, rotated, 9.0).members("a", KEYS[0])
    assert own.public_key == KEYS[0] and own.address == "tcp://h:1"
