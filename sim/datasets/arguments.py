"""Options of a data set as words of a command line; the models of the adapters say which.

There is no second list of options: ``--min-rows 20`` is the key ``min_rows`` of the adapter's own
``Options``, and what is wrong with it is said by the same checks as in a TOML file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from abps_node.config_text import Schema, allowed, resolved
from abps_node.errors import ConfigError
from sim.datasets import find_entry


def options_model(name: str) -> type[BaseModel]:
    """The model of a data set's options; ``ConfigError`` for an unknown data set."""
    module = importlib.import_module(f"sim.datasets.{find_entry(name).module}")
    model: type[BaseModel] = module.Options
    return model


def parsed(name: str, words: Sequence[str]) -> dict[str, Any]:
    """``["--min-rows", "20", "--features=age,sex"]`` as keys and values, not checked yet.

    A word that does not fit its key stays text, and the check names it. Raises ``ConfigError`` for
    a word that belongs to no option.
    """
    return parsed_as(options_model(name), name, words)


def parsed_as(model: type[BaseModel], name: str, words: Sequence[str]) -> dict[str, Any]:
    """``parsed`` for options that are ``model``'s; ``name`` is what an error begins with."""
    root = model.model_json_schema()
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, text = word.partition("=")
        if not option.startswith("--"):
            raise ConfigError(f"{name}: found {word!r}, allowed: --option value")
        if not equals:
            if not rest:
                raise ConfigError(f"{name}: {option}: found nothing behind it, allowed: a value")
            text = rest.pop(0)
        key = option[2:].replace("-", "_")
        if key in found:
            raise ConfigError(f"{name}: {option}: found twice, allowed: once")
        found[key] = _value(text, root["properties"].get(key, {"type": "string"}), root)
    return found


def described(name: str) -> Iterator[tuple[str, str, str, str]]:
    """(option, what is allowed, default, what it does) of each option."""
    model = options_model(name)
    root = model.model_json_schema()
    for key, field in model.model_fields.items():
        default = "required" if field.is_required() else str(field.default or "not given")
        if isinstance(field.default, (int, float)):
            default = f"{field.default:g}"
        words = allowed(root["properties"][key], root)
        if resolved(root["properties"][key], root).get("type") == "array":
            words = "a list, commas between"
        yield "--" + key.replace("_", "-"), words, default, field.description or ""


def _value(text: str, node: Schema, root: Schema) -> Any:
    kind = resolved(node, root).get("type", "string")
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    if kind == "array":
        return text.split(",")
    return {"true": True, "false": False}.get(text, text) if kind == "boolean" else text
