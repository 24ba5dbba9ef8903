"""Writes what of the documentation follows from the code: ``python docs/generate.py``.

The pictures, and in some pages the blocks between ``<!-- begin NAME -->`` and
``<!-- end NAME -->``. The reference pages are made by ``abps_node.cli.reference``; ``make docs``
does both. A test compares what is committed with what this renders.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from generator import modules, results, sessions, wire
from generator import round as one_round

DOCS: Final = Path(__file__).parent
COMPARED: Final = (
    ("diabetes.json", "fedcare"),
    ("diabetes.json", "abps+pareto"),
    ("eicu.json", "fedcare"),
    ("eicu.json", "fmgda.unit"),
    ("several.json", "abps+pareto"),
)
"""Results and the row of them that is set against all others."""

FILES: Final[dict[str, Callable[[], str]]] = {
    "round.svg": one_round.round_picture,
    "session.svg": sessions.life_picture,
    "settlement.svg": sessions.settlement_picture,
}
BLOCKS: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "protocol.md": {
        "frame": wire.ping_dump,
        "common fields": wire.common_fields,
        "messages": wire.messages_section,
        "states": sessions.states_table,
        "inputs": sessions.inputs_table,
    },
    "architecture.md": {
        room: partial(modules.modules_table, room)
        for room in ("protocol", "abps_node", "launch", "sim")
    },
    "reproduction-fedcare.md": {
        **{
            f"results {path.name}": partial(results.fedcare_table, path.name)
            for path in sorted(results.FEDCARE.glob("*.json"))
        },
        **{
            f"compare {row} {name}": partial(results.fedcare_comparison, name, row)
            for name, row in COMPARED
        },
    },
}


def rendered(directory: Path = DOCS) -> dict[str, str]:
    """File name to what should stand in it; pages with blocks are read from ``directory``."""
    pages = {name: make() for name, make in FILES.items()}
    for name, blocks in BLOCKS.items():
        text = (directory / name).read_text(encoding="utf-8")
        for block, make in blocks.items():
            text = _replaced(text, block, make())
        pages[name] = text
    return pages


def _replaced(text: str, block: str, content: str) -> str:
    begin, end = f"<!-- begin {block} -->", f"<!-- end {block} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", text)
    if count != 1:
        raise LookupError(f"block {block!r}: found {count} times, allowed: once")
    return new


def main() -> None:
    """Write all files."""
    for name, text in rendered().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
