"""What the launcher shows: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from launch.progress import CenterView, progress_on

VIEWS = [
    CenterView("near", "training", False, False, 3, 40, "far, [bold]odd", "auroc 0.712", 1),
    CenterView("far", "exit 11", False, True, 0, 40, "", "", 0),
    CenterView("early", "lingering", True, False, 31, 40, "near", "auroc 0.7", 0),
]


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, width=110, force_terminal=terminal)
    with progress_on(console, "made: 3 centers") as progress:
        progress.update(VIEWS)
        progress.update(VIEWS)
        progress.say("far: exit 11: [red] is no markup here", warn=True)
    return out.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    assert shown(terminal=False).splitlines() == [
        "made: 3 centers",
        "   0 s  near 3/40  far exit 11  early 31 done",
        "far: exit 11: [red] is no markup here",
    ]


def test_a_table_on_a_terminal() -> None:
    text = shown(terminal=True)
    for part in ("made: 3 centers · 0 s", "near", "training", "3/40", "auroc 0.712", "exit 11"):
        assert part in text
    assert "far: exit 11: [red] is no markup here" in text


def test_names_are_never_read_as_markup() -> None:
    assert "far, [bold]odd" in shown(terminal=True)
