"""The picture of one round for the README."""

from __future__ import annotations

from generator.svg import MUTED, PAPER, Box, Drawing

_OWN, _SAID, _KEPT = "#eef2f6", "#d6e6f7", "#fbf1c7"
_LEFT, _RIGHT, _MIDDLE = 205.0, 775.0, 490.0


def round_picture() -> str:
    """Two centers side by side, what each does, and what goes between them."""
    drawing = Drawing(980, 640, "One round between two centers, without a server")
    _houses(drawing)
    _steps(drawing)
    _messages(drawing)
    return drawing.render()


def _houses(drawing: Drawing) -> None:
    for x, name in ((_LEFT, "center A, a hospital"), (_RIGHT, "center B, another hospital")):
        drawing.box(Box(x, 322, 380, 608), [], fill=PAPER, stroke=MUTED)
        drawing.text((x, 38), name, size=15, bold=True)
        drawing.box(Box(x, 76, 340, 40), ["patients and private layers: never leave"], fill=_KEPT)
    drawing.divider((_MIDDLE, 62), (_MIDDLE, 596))
    drawing.text((_MIDDLE, 38), "encrypted, no server", size=12.5, color=MUTED)


def _steps(drawing: Drawing) -> None:
    both = {
        136: ["1  Local step", "some epochs on the own training patients"],
        454: [
            "5  Credit",
            "Shapley share in the gain on the own",
            "validation patients, per partner",
        ],
        526: ["6  Merge", "shared layers = mean of own and received"],
        588: ["7  Belief", "Beta posterior over each partner's use"],
    }
    for y, lines in both.items():
        for x in (_LEFT, _RIGHT):
            drawing.box(Box(x, y, 340, 20 + 16 * len(lines)), lines, fill=_OWN)
    choose = [
        "2  Choose",
        "peers that pass the goal filter,",
        "by upper confidence bound of the belief",
    ]
    answer = ["3  Answer", "a free slot? fits the own goal?", "own bound for A at least τ?"]
    drawing.box(Box(_LEFT, 212, 340, 68), choose, fill=_OWN)
    drawing.box(Box(_RIGHT, 258, 340, 68), answer, fill=_OWN)
    rest = ["Nobody accepted: rest", "go on with the own model; the cause is recorded"]
    drawing.box(Box(_LEFT, 310, 340, 48), rest, fill=PAPER, dashed=True)
    for x in (_LEFT, _RIGHT):
        lines = ["4  Exchange", "the shared layers of the newest local step"]
        drawing.box(Box(x, 382, 340, 52), lines, fill=_SAID)


def _messages(drawing: Drawing) -> None:
    left, right = _LEFT + 170, _RIGHT - 170
    said = (
        (left, 204, right, 244, ["propose"]),
        (right, 272, left, 306, ["accept, or reject", "with a reason"]),
        (left, 373, right, 373, ["trunk"]),
        (right, 392, left, 392, ["trunk"]),
        (left, 579, right, 579, ["settle: merged?"]),
        (right, 598, left, 598, ["settle: merged?"]),
    )
    for x1, y1, x2, y2, words in said:
        drawing.arrow((x1, y1), (x2, y2))
        drawing.label(((x1 + x2) / 2, (y1 + y2) / 2), words)
