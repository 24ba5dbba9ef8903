"""Tables of committed results: what a method reaches, and one row against all others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sim.multi import compare as comparing
from sim.multi import tables
from sim.results_files import Result, read

FEDCARE = Path(__file__).parents[2] / "sim" / "results" / "fedcare"


def fedcare_table(name: str) -> str:
    """`abps sim tasks table --markdown`."""
    return "\n".join(tables.markdown(tables.table(_read(name)))).strip()


def fedcare_comparison(name: str, row: str) -> str:
    """`abps sim tasks compare --markdown --row ROW`."""
    return "\n".join(comparing.markdown(comparing.compare(_read(name), row), row)).strip()


@cache
def _read(name: str) -> list[Result]:
    return read([FEDCARE / name])
