"""Docstrings that stand below class attributes, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from itertools import pairwise


def attribute_docs(cls: type) -> dict[str, str]:
    """Attribute name to the string literal right below it, on one line; only where there is one."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs: dict[str, str] = {}
    for statement, below in pairwise(body):
        name = _assigned(statement)
        text = _literal(below)
        if name is not None and text is not None:
            docs[name] = " ".join(text.split())
    return docs


def summary(thing: object) -> str:
    """First paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(map(_row, [head, ["---"] * len(head), *rows]))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def _literal(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None
