"""Nothing in a printed text acts on a terminal, hides, or turns its neighbors around."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.visible import visible, visible_json

ANY = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, μ → 0.5 «ok»", "plain, μ → 0.5 «ok»"),
        ("red \x1b[31m\n", "red \\x1b[31m\\x0a"),
        ("a\x9b31m", "a\\x9b31m"),
        ("right \u202e tfel", "right \\u202e tfel"),
        ("no\u200bthing", "no\\u200bthing"),
        ("end\u2028of line", "end\\u2028of line"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_acts_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANY)
def test_no_such_character_is_left(text: str) -> None:
    left = {unicodedata.category(char) for char in visible(text)}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.dictionaries(ANY, ANY), st.sampled_from([None, 2]))
def test_json_says_the_same(value: dict[str, str], indent: int | None) -> None:
    text = visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
    assert json.loads(text) == value
    left = {unicodedata.category(char) for char in text.replace("\n", "")}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_json_of_one_character_beyond_the_first_plane() -> None:
    assert visible_json('"\U000e0041"') == '"\\udb40\\udc41"'
    assert visible_json('"\u202e"') == '"\\u202e"'
    assert visible_json('"\x7f\x9b"') == '"\\u007f\\u009b"'
