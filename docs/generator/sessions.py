"""The session state table of ``protocol.session`` as two pictures and three tables.

Every arrow comes from ``TRANSITIONS``; only where a state stands in a picture is written here. A
state without a place is an error, so a new one cannot be forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from generator.source import attribute_docs, table
from generator.svg import PAPER, Box, Drawing, Point
from protocol.session import EXCHANGING, MERGEABLE, OPEN, OUTCOMES, TRANSITIONS, VOID, Input, State

Edges = Mapping[tuple[State, State], list[str]]

SETTLING = frozenset({Input.DISCARD, Input.SETTLED_YES, Input.SETTLED_NO})
"""Inputs after the outcome; they have a picture of their own."""

_WIDTH, _HEIGHT = 118, 40
_GRID = (204, 108)

_LIFE: dict[State, Point] = {
    State.REJECTED: (1, 0),
    State.CROSSED: (2, 0),
    State.PROPOSED: (1, 1),
    State.SENT: (2, 1),
    State.ACKNOWLEDGED: (3, 1),
    State.SENT_ONLY: (4, 1),
    State.NEW: (0, 2),
    State.WITHDRAWN: (1, 2),
    State.ABORTED: (2, 2),
    State.COMPLETE: (4, 2),
    State.ACCEPTED: (1, 3),
    State.RECEIVED: (3, 3),
    State.RECEIVED_ONLY: (4, 3),
}
_END: dict[State, Point] = {
    State.COMPLETE: (0, 0),
    State.RECEIVED_ONLY: (1, 0),
    State.SENT_ONLY: (0, 1),
    State.ABORTED: (1, 1),
}
_KINDS = {
    "open, holds no slot": (OPEN - EXCHANGING, "#fbf1c7"),
    "open, holds a slot": (EXCHANGING, "#d6e6f7"),
    "outcome, merged": (MERGEABLE, "#d3efd9"),
    "outcome, nothing to merge": (OUTCOMES - MERGEABLE, "#f7dfd3"),
    "ended without an exchange": (VOID, PAPER),
}
"""What a state means for slots and merge: the words, the states, their color."""


def life_picture() -> str:
    """From the proposal to the outcome, on one side."""
    drawing = Drawing(1000, 460, "States of a session, from the proposal to its outcome")
    _draw(drawing, _place(_LIFE, (84, 40), _GRID), _edges(settling=False))
    x = 36.0
    for words, (_, color) in _KINDS.items():
        drawing.box(Box(x, 434, 22, 16), [], fill=color, dashed=color == PAPER)
        drawing.text((x + 18, 434), words, size=11.5, anchor="start")
        x += 60 + 6.6 * len(words)
    return drawing.render()


def settlement_picture() -> str:
    """What the peer's final word, or an early end, still changes."""
    drawing = Drawing(700, 220, "How the peer's final word settles an outcome")
    _draw(drawing, _place(_END, (230, 52), (240, 116)), _edges(settling=True))
    return drawing.render()


def states_table() -> str:
    """One row a state: what it means for slots and merge, and what it accepts."""
    rows = []
    for state in State:
        moves = [f"{event} → {to}" for (start, event), to in TRANSITIONS.items() if start is state]
        rows.append([f"`{state}`", _kind(state), ", ".join(moves) or "nothing, it is final"])
    return table(["state", "what it is", "input → next state"], rows)


def inputs_table() -> str:
    """One row an input."""
    docs = attribute_docs(Input)
    return table(["input", "what happened"], [[f"`{event}`", docs[event.name]] for event in Input])


def _edges(settling: bool) -> Edges:
    edges: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (start, event), end in TRANSITIONS.items():
        if (event in SETTLING) is settling:
            edges[start, end].append(str(event))
    return edges


def _place(places: Mapping[State, Point], origin: Point, grid: Point) -> dict[State, Box]:
    return {
        state: Box(origin[0] + x * grid[0], origin[1] + y * grid[1], _WIDTH, _HEIGHT)
        for state, (x, y) in places.items()
    }


def _draw(drawing: Drawing, boxes: Mapping[State, Box], edges: Edges) -> None:
    for (start, end), words in edges.items():
        if start is end:
            _loop(drawing, boxes[start], words, left=boxes[start].x < drawing.width / 2)
        else:
            shift = 9.0 if (end, start) in edges else 0.0
            _straight(drawing, boxes[start], boxes[end], words, shift)
    for state, box in boxes.items():
        color = next((color for states, color in _KINDS.values() if state in states), PAPER)
        drawing.box(box, [state], fill=color, dashed=state in VOID)


def _straight(drawing: Drawing, start: Box, end: Box, words: list[str], shift: float) -> None:
    """An arrow between two boxes; one of an opposite pair is moved to its right-hand side."""
    (x1, y1), (x2, y2) = start.border((end.x, end.y)), end.border((start.x, start.y))
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = -(y2 - y1) / length * shift, (x2 - x1) / length * shift
    drawing.arrow((x1 + dx, y1 + dy), (x2 + dx, y2 + dy))
    drawing.label(((x1 + x2) / 2 + 1.9 * dx, (y1 + y2) / 2 + 1.9 * dy), words)


def _loop(drawing: Drawing, box: Box, words: list[str], left: bool) -> None:
    side = -1 if left else 1
    x = box.x + side * box.width / 2
    far = x + side * 44
    drawing.path(
        f"M {x:.1f} {box.y - 9:.1f} C {far:.1f} {box.y - 26:.1f} "
        f"{far:.1f} {box.y + 26:.1f} {x:.1f} {box.y + 9:.1f}"
    )
    drawing.label((far + side * 34, box.y), words)


def _kind(state: State) -> str:
    kinds = (words for words, (states, _) in _KINDS.items() if state in states)
    return next(kinds, "before anything was said")
