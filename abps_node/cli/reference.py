"""Writes docs/configuration.md and docs/exit-codes.md: ``python -m abps_node.cli.reference docs``.

Everything in them comes from the models, the presets and the exit codes; a test compares the
committed pages with what this module renders.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from abps_node.config_files import CenterFile, FederationFile
from abps_node.config_text import Schema, allowed, resolved, shown
from abps_node.exits import AFTER_A_CHANGE, NEVER_AGAIN, WORTH_A_RESTART, ExitCode
from protocol.contract import Policy
from protocol.presets import PRESETS

_MADE: Final = "<!-- Made by `python -m abps_node.cli.reference docs`; do not edit. -->\n"


def configuration_page() -> str:
    """docs/configuration.md."""
    return "\n".join(
        [
            "# Configuration",
            _MADE,
            "Two TOML files. `federation.toml` is the same in all centers; the hash of its "
            "`[contract]` travels in every handshake, and a center with another one is refused by "
            "name. Roster and discovery are outside the hash, so that a center can join without a "
            "new contract. `center.toml` is one center's own. Relative paths start at the folder "
            "of the file in which they stand.",
            "",
            "Both are checked strictly: an unknown key, a wrong type or a value out of range is "
            "an error that names the file, the key, what was found and what is allowed. "
            "`abps check center.toml` lists all of them at once, and `abps init` writes commented "
            "examples of both.",
            "",
            "## center.toml",
            "",
            *_tables(CenterFile),
            "## federation.toml",
            "",
            *_tables(FederationFile),
            "## Presets",
            "",
            "`contract.policy.preset` supplies defaults for the keys of `[contract.policy]`; a key "
            "that is written out beside it wins. Not the name but the resulting values enter the "
            "hash.",
            "",
            *_presets(),
        ]
    )


def exit_codes_page() -> str:
    """docs/exit-codes.md."""
    rows = [[f"{code.value}", f"`{code.name}`", code.meaning, code.remedy] for code in ExitCode]
    return "\n".join(
        [
            "# Exit codes of `abps`",
            _MADE,
            "All that went wrong is one message on stderr, and one of these numbers.",
            "",
            *_table(["code", "name", "what happened", "what to do"], rows),
            "",
            "130 and 143 are the shell's numbers for Ctrl-C and SIGTERM: the command was ended "
            "before it handled them, which costs nothing.",
            "",
            f"Under a supervisor: restart after {_numbers(WORTH_A_RESTART)}, never after "
            f"{_numbers(NEVER_AGAIN)}, and after {_numbers(AFTER_A_CHANGE)} only once somebody has "
            "changed what the message names.",
            "",
        ]
    )


def _numbers(codes: Sequence[ExitCode]) -> str:
    *first, last = [str(code.value) for code in codes]
    return f"{', '.join(first)} and {last}" if first else last


PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": configuration_page,
    "exit-codes.md": exit_codes_page,
}


def _tables(model: type[BaseModel]) -> Iterable[str]:
    """One table of keys for the file itself, and one for every TOML table in it."""
    root = model.model_json_schema()
    waiting = [("", root)]
    while waiting:
        prefix, node = waiting.pop(0)
        if prefix:
            yield from (f"### `{_heading(prefix, node)}`", "")
            node = _item(node, root)
        yield from (_sentence(node.get("description", "")), "")
        rows, inner = [], []
        for name, child in node["properties"].items():
            if "properties" in _item(child, root):
                inner.append((f"{prefix}.{name}".lstrip("."), child))
            rows.append(_row(name, child, name in node.get("required", []), root))
        yield from _table(["key", "allowed", "default", "meaning"], rows)
        yield ""
        waiting = inner + waiting


def _item(node: Schema, root: Schema) -> Schema:
    """The schema of a table, or of the entries of a list."""
    node = resolved(node, root)
    return resolved(node["items"], root) if node.get("type") == "array" else node


def _heading(prefix: str, node: Schema) -> str:
    return f"[[{prefix}]]" if node.get("type") == "array" else f"[{prefix}]"


def _row(name: str, child: Schema, required: bool, root: Schema) -> list[str]:
    default = "required" if required else _default(child, root)
    meaning = child.get("description") or resolved(child, root).get("description", "")
    return [f"`{name}`", allowed(child, root), default, meaning]


def _default(child: Schema, root: Schema) -> str:
    value = child.get("default")
    if value is None or "properties" in resolved(child, root):
        return "–"
    return f"`{shown(value)}`"


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _presets() -> Iterable[str]:
    base = Policy().model_dump()
    keys = list(dict.fromkeys(key for values in PRESETS.values() for key in values))
    keys.sort(key=list(base).index)

    def cell(values: dict[str, Any], key: str) -> str:
        value = values.get(key, base[key])
        text = "–" if value is None else str(value)
        return f"**{text}**" if key in values else text

    rows = [[f"`{name}`", *(cell(PRESETS[name], key) for key in keys)] for name in PRESETS]
    yield from _table(["preset", *(f"`{key}`" for key in keys)], rows)
    yield ""


def write(directory: Path) -> None:
    """Render all pages into ``directory``."""
    for name, page in PAGES.items():
        (directory / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
