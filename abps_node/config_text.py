"""Words for configuration: what a key may hold, and what is wrong with a file.

Everything is read off the JSON schema of the pydantic models, so that error messages and
``docs/configuration.md`` cannot say anything else than what is enforced.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Schema = dict[str, Any]
Location = Sequence[str | int]
M = TypeVar("M", bound=BaseModel)

FILL_IN: Final = "fill in"
"""Stands in drafts wherever a person has to decide."""

_SHOWN_CHARACTERS = 80
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_OWN_WORDS = "allowed"
"""Key of ``json_schema_extra`` under which a model gives its own words for a pattern or check."""


def resolved(node: Schema, root: Schema) -> Schema:
    """``node`` with references followed and the null of an optional key left out."""
    while True:
        if "$ref" in node:
            target = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
            node = {**{key: node[key] for key in node if key != "$ref"}, **target}
        elif "anyOf" in node:
            (option,) = (option for option in node["anyOf"] if option.get("type") != "null")
            node = {**{key: node[key] for key in node if key != "anyOf"}, **option}
        else:
            return node


def allowed(node: Schema, root: Schema) -> str:
    """What a key may hold, in words: «an integer from 1 to 64», «one of none, homogeneity»."""
    node = resolved(node, root)
    if _OWN_WORDS in node:
        return str(node[_OWN_WORDS])
    if "enum" in node:
        return "one of " + ", ".join(str(value) for value in node["enum"])
    if "const" in node:
        return str(node["const"])
    kind = node["type"]
    if kind in ("integer", "number"):
        return _number_words(node, "an integer" if kind == "integer" else "a number")
    if kind == "array":
        return _list_words(node, root)
    if kind == "string":
        return "text" + _count_words(node.get("minLength"), node.get("maxLength"), "characters")
    return {"boolean": "true or false", "object": "a table"}[kind]


def _number_words(node: Schema, noun: str) -> str:
    low, above = node.get("minimum"), node.get("exclusiveMinimum")
    high, below = node.get("maximum"), node.get("exclusiveMaximum")
    if node["type"] == "integer" and below is not None:
        high, below = below - 1, None
    if low is not None and high is not None:
        return f"{noun} from {_digits(low)} to {_digits(high)}"
    bounds = (("of at least", low), ("above", above), ("at most", high), ("below", below))
    words = [f"{word} {_digits(bound)}" for word, bound in bounds if bound is not None]
    return " ".join([noun, " and ".join(words)]).strip()


def _digits(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _list_words(node: Schema, root: Schema) -> str:
    inner = allowed(node["items"], root)
    if inner == "a table":
        return f"a list{_count_words(node.get('minItems'), node.get('maxItems'), 'tables')}, [[…]]"
    return (
        f"a list{_count_words(node.get('minItems'), node.get('maxItems'), 'entries')}, each {inner}"
    )


def _count_words(least: int | None, most: int | None, what: str) -> str:
    if least is not None and most is not None:
        return f" of {least} to {most} {what}"
    if least is not None:
        return f" of {least} or more {what}"
    return f" of at most {most} {what}" if most is not None else ""


def shown(value: object) -> str:
    """A value as it would stand in a TOML file, shortened."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return "a list of tables"
    if isinstance(value, float):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def properties(root: Schema, node: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Every key below ``node`` as (dotted key, schema, required); lists of tables get ``[]``."""
    node = resolved(node, root)
    required = node.get("required", [])
    for name, child in node.get("properties", {}).items():
        key = f"{prefix}{name}"
        yield key, child, name in required
        inner = resolved(child, root)
        if inner.get("type") == "array":
            yield from properties(root, inner["items"], f"{key}[].")
        else:
            yield from properties(root, inner, f"{key}.")


def checked(model: type[M], raw: dict[str, Any], file: object) -> tuple[M | None, list[str]]:
    """``raw`` as a ``model``, or one line per problem: file, key, what was found, the allowed."""
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        root = _schema_of(model)
        details = error.errors(include_url=False)
        return None, [f"{file}: {_problem(detail, raw, root)}" for detail in details]


@cache
def _schema_of(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _problem(detail: ErrorDetails, raw: dict[str, Any], root: Schema) -> str:
    location = detail["loc"]
    key = _dotted(location, raw)
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_near(location, root)}"
    node = _node_at(location, root)
    if detail["type"] == "missing":
        return f"{key}: missing, allowed: {allowed(node, root)}"
    if detail["type"] == "value_error" and resolved(node, root).get("type") == "object":
        # Such a text of the models starts with the key, relative to the table it stands in.
        return f"{key}.{detail['ctx']['error']}".lstrip(".")
    finite = " (finite)" if detail["type"] == "finite_number" else ""
    return f"{key}: found {shown(detail['input'])}, allowed: {allowed(node, root)}{finite}"


def _dotted(location: Location, table: dict[str, Any]) -> str:
    """``contract.data.features[age].kind``: entries of a list go by their name if they have one."""
    key, raw = "", cast("Any", table)
    for step in location:
        inside = isinstance(raw, list) or step in raw
        raw = raw[step] if inside else {}
        if isinstance(step, str):
            key += f".{_quoted_if_odd(step)}" if key else _quoted_if_odd(step)
            continue
        names = [raw[field] for field in ("id", "name") if isinstance(raw, dict) and field in raw]
        named = names and isinstance(names[0], str)
        key += f"[{_quoted_if_odd(names[0])}]" if named else f"[#{step + 1}]"
    return key


def _quoted_if_odd(name: str) -> str:
    """A key as TOML would have it, so that one with a line break cannot break the message."""
    return name if _BARE_KEY.match(name) else shown(name)


def _node_at(location: Location, root: Schema) -> Schema:
    node = root
    for step in location:
        node = resolved(node, root)
        node = node["properties"][step] if isinstance(step, str) else node["items"]
    return node


def _near(location: Location, root: Schema) -> str:
    *parent, name = location
    known = list(resolved(_node_at(parent, root), root)["properties"])
    close = difflib.get_close_matches(str(name), known)
    if close:
        return f"nearest known: {', '.join(close)}"
    elsewhere = [key for key, _, _ in properties(root, root) if key.split(".")[-1] == name]
    hint = f"; it belongs to {' or '.join(elsewhere)}" if elsewhere else ""
    return f"known here: {', '.join(known)}{hint}"
