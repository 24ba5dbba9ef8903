"""The two configuration files of a federation directory, written for people to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tomli_w

from protocol.contract import Contract, Goal

_HEAD = """\
# What all centers of this federation share. The hash of everything below [contract] travels in
# every handshake: a center whose contract differs in one value is refused by name.

# Several centers' secret keys lie in this directory: for experiments on one machine only.
simulation = true
"""

_DISCOVERY = """\
# How centers find each other: each drops its address into this directory and watches it.
[discovery]
kind = "directory"
path = "cards"
poll_s = 0.5
"""

_ROSTER = """\
# Who may take part, and by which key each is known. Not part of the hash: admitting a center
# divides nobody.
"""

_COMMENTS = {
    "data": "The table that every center brings: one row per patient.",
    "model": "The network; all centers start from the weights that init_seed draws.",
    "training": "One local step.",
    "policy": "Who collaborates, when, and at what cost. What is not written has its default.",
    "pacing": "Bounds in time and number.",
}


def federation_text(contract: Contract, public_keys: Mapping[str, str]) -> str:
    """``federation.toml``: the values that the contract was given, discovery by directory, roster.

    ``public_keys`` maps each center id to its CURVE public key (z85).
    """
    values = contract.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    sections = {key: values.pop(key) for key in _COMMENTS if key in values}
    parts = [_HEAD, tomli_w.dumps({"contract": values})]
    for key, section in sections.items():
        parts.append(f"# {_COMMENTS[key]}\n{_section(key, section)}")
    parts.append(_DISCOVERY)
    members = [{"id": center, "public_key": key} for center, key in public_keys.items()]
    parts.append(_ROSTER + "\n".join("[[roster]]\n" + tomli_w.dumps(each) for each in members))
    return "\n".join(parts)


def center_text(center: str, *, seed: int, goal: Goal | None, compare_alone: bool) -> str:
    """``center.toml`` of one center of a federation directory."""
    own: dict[str, Any] = {"seed": seed, "compare_alone": compare_alone}
    if goal is not None:
        own["goal"] = goal
    return (
        "# One center's own settings. Paths are relative to this file.\n"
        f'id = "{center}"\n'
        'federation = "../../federation.toml"\n'
        'data = "patients.parquet"\n'
        'state_dir = "state"\n'
        f'secret_key = "keys/{center}.secret"\n'
        "\n# Port 0: the system chooses a free one, and the card in ../../cards tells it.\n"
        'bind = "tcp://127.0.0.1:0"\n'
        "\n# The center's own randomness, and whether it also measures what it reaches alone.\n"
        + tomli_w.dumps(own)
    )


def _section(name: str, values: Mapping[str, Any]) -> str:
    """One table of the contract; the features of the schema each on a line of its own."""
    features = values.get("features") if name == "data" else None
    if features is None:
        return tomli_w.dumps({"contract": {name: values}})
    rest = {key: value for key, value in values.items() if key != "features"}
    plain = {key: value for key, value in rest.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in rest.items() if isinstance(value, dict)}
    lines = "".join(f"    {_inline(feature)},\n" for feature in features)
    text = tomli_w.dumps({"contract": {name: plain}}) + f"features = [\n{lines}]\n"
    return text + (f"\n{tomli_w.dumps({'contract': {name: tables}})}" if tables else "")


def _inline(feature: Mapping[str, Any]) -> str:
    """A feature as an inline table.

    JSON writes booleans, lists and strings as TOML does, but for one character.
    """
    pairs = (
        f"{key} = " + json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        for key, value in feature.items()
    )
    return "{ " + ", ".join(pairs) + " }"
