"""The modules of each room with the first sentence of their docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

from generator.source import table

ROOT = Path(__file__).parents[2]


def modules_table(room: str) -> str:
    """One row a module of a top-level package, its subpackages included."""
    rows = []
    for path in sorted((ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT / room).as_posix()
        words = _first_paragraph(path)
        if name != "__init__.py" and words:
            rows.append([f"`{name.removesuffix('__init__.py')}`", words])
    return table(["module", "what it is"], rows)


def _first_paragraph(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).replace("``", "`")
