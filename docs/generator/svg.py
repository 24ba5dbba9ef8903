"""Just enough SVG for boxes, arrows and words; plain shapes that every viewer draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

Point = tuple[float, float]

FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
INK = "#1f2933"
MUTED = "#52606d"
PAPER = "#ffffff"
_LINE = 16.0


@dataclass(frozen=True)
class Box:
    """A rounded rectangle around its center."""

    x: float
    y: float
    width: float
    height: float

    def border(self, towards: Point) -> Point:
        """Where the line from the center to ``towards`` leaves the box."""
        dx, dy = towards[0] - self.x, towards[1] - self.y
        across = self.width / 2 / abs(dx) if dx else math.inf
        down = self.height / 2 / abs(dy) if dy else math.inf
        share = min(across, down)
        return self.x + dx * share, self.y + dy * share


@dataclass
class Drawing:
    """A picture under construction; later things cover earlier ones."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(
        self, box: Box, lines: list[str], *, fill: str, stroke: str = INK, dashed: bool = False
    ) -> None:
        """A box with centered lines of text, the first in bold if there are several."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y - box.height / 2:.1f}" '
            f'width="{box.width:.1f}" height="{box.height:.1f}" rx="7" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="1.4"{dash}/>'
        )
        top = box.y - (len(lines) - 1) * _LINE / 2
        for number, line in enumerate(lines):
            bold = number == 0 and len(lines) > 1
            self.text((box.x, top + number * _LINE), line, bold=bold)

    def text(
        self,
        at: Point,
        words: str,
        *,
        size: float = 12.5,
        anchor: str = "middle",
        bold: bool = False,
        color: str = INK,
    ) -> None:
        """One line of text whose middle is at height ``at[1]``."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1] + size * 0.35:.1f}" font-size="{size}" '
            f'text-anchor="{anchor}" fill="{color}"{weight}>{escape(words)}</text>'
        )

    def label(self, at: Point, lines: list[str], *, size: float = 11.5, color: str = MUTED) -> None:
        """Lines of text on a patch of paper, so that an arrow below stays readable."""
        height = len(lines) * (size + 3)
        width = max(map(len, lines)) * size * 0.58 + 6
        self.parts.append(
            f'<rect x="{at[0] - width / 2:.1f}" y="{at[1] - height / 2:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" fill="{PAPER}"/>'
        )
        top = at[1] - (len(lines) - 1) * (size + 3) / 2
        for number, line in enumerate(lines):
            self.text((at[0], top + number * (size + 3)), line, size=size, color=color)

    def arrow(self, start: Point, end: Point) -> None:
        """A straight arrow."""
        self.path(f"M {start[0]:.1f} {start[1]:.1f} L {end[0]:.1f} {end[1]:.1f}")

    def path(self, curve: str) -> None:
        """A path with a head at its end."""
        self.parts.append(
            f'<path d="{curve}" fill="none" stroke="{INK}" stroke-width="1.4" '
            'marker-end="url(#head)"/>'
        )

    def divider(self, start: Point, end: Point) -> None:
        """A dotted line without a head."""
        self.parts.append(
            f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            f'stroke="{MUTED}" stroke-width="1.2" stroke-dasharray="3 5"/>'
        )

    def render(self) -> str:
        """The SVG file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                f'height="{self.height}" viewBox="0 0 {self.width} {self.height}" role="img" '
                f"aria-label={quoteattr(self.title)} font-family={quoteattr(FONT)}>",
                "<!-- Made by `python docs/generate.py`; do not edit. -->",
                f"<title>{escape(self.title)}</title>",
                '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                'markerHeight="7" orient="auto-start-reverse">'
                f'<path d="M 0 0 L 10 5 L 0 10 z" fill="{INK}"/></marker></defs>',
                f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )
