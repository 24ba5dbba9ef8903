"""Whatever stands at whatever key: the file loads, or every problem is one line with its key."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from abps_node.config_files import CenterFile, FederationFile
from abps_node.config_text import allowed, checked, properties
from protocol.contract import Strict
from tests.support.toml_files import center_tables, federation_tables

VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=20),
        st.dates(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below ``node``."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            found += places(node[key])
    return found


@given(st.data(), VALUES, st.text(max_size=8))
def test_one_spoiled_place(data: st.DataObject, value: object, new_key: str) -> None:
    model = data.draw(st.sampled_from([FederationFile, CenterFile]))
    tables = federation_tables() if model is FederationFile else center_tables()
    container, key = data.draw(st.sampled_from(places(tables)))
    container[data.draw(st.sampled_from([key, new_key])) if isinstance(key, str) else key] = value
    judge(model, tables)


@given(st.sampled_from([FederationFile, CenterFile]), st.dictionaries(st.text(max_size=9), VALUES))
def test_anything_at_all(model: type[Strict], tables: dict[str, Any]) -> None:
    judge(model, tables)


def judge(model: type[Strict], tables: dict[str, Any]) -> None:
    good, problems = checked(model, tables, "file.toml")
    assert (good is None) == bool(problems)
    for problem in problems:
        assert problem.startswith("file.toml: ")
        assert "\n" not in problem
        assert any(
            word in problem for word in ("allowed: ", "unknown key; ", ": a ", "stands there")
        )


def test_every_key_has_words_for_what_it_may_hold() -> None:
    for model in (FederationFile, CenterFile):
        root = model.model_json_schema()
        for key, node, _ in properties(root, root):
            assert allowed(node, root), key
