"""One line of the preflight table, and the guard that keeps one problem from hiding another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from abps_node.errors import NodeError


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """The center runs, but perhaps not as somebody means it to."""
    PROBLEM = "problem"
    """The center would not run."""


@dataclass(frozen=True)
class Finding:
    """What a check found, and how to change it; ``fix`` is empty where there is nothing to do."""

    check: str
    severity: Severity
    finding: str
    fix: str = ""


def ok(check: str, finding: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Severity.OK, finding)


def warning(check: str, finding: str, fix: str) -> Finding:
    """Worth a thought."""
    return Finding(check, Severity.WARNING, finding, fix)


def problem(check: str, finding: str, fix: str) -> Finding:
    """In the way of a start."""
    return Finding(check, Severity.PROBLEM, finding, fix)


def guarded(check: str, fix: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of ``look``; an error of the node becomes a problem of this check."""
    try:
        return list(look())
    except NodeError as error:
        return [problem(check, str(error), fix)]
