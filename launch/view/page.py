"""One HTML page that needs nothing else: no script, no network, light or dark as the reader likes.

A content security policy in the page itself forbids all that it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from abps_node.visible import visible

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE: Final = """\
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #d5d9de; --paper: #ffffff;
  --soft: #5b636d; --alarm: #b42318; --good: #1a7f37; --shade: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --faint: #3a4149; --paper: #14181c;
  --soft: #9aa4af; --alarm: #ff8a80; --good: #5bd07f; --shade: #1d2328; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; border-bottom: 1px solid var(--faint); }
p { max-width: 60rem; margin: .4rem 0; }
nav a { margin-right: 1rem; white-space: nowrap; }
a { color: inherit; }
.soft, figcaption { color: var(--soft); }
.alarm { color: var(--alarm); font-weight: 600; }
.good { color: var(--good); }
.scroll { overflow-x: auto; margin: .6rem 0; }
figure { margin: 0; }
figure svg { display: block; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 1px solid var(--faint); white-space: nowrap; }
tbody th { white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--shade); }
td.right, th.right { text-align: right; white-space: nowrap; }
"""


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    name: str
    """Its anchor."""
    title: str
    body: str
    """HTML."""


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page; ``lead`` is HTML."""
    links = "".join(f'<a href="#{each.name}">{text(each.title)}</a>' for each in sections)
    parts = "".join(
        f'<section id="{each.name}">\n<h2>{text(each.title)}</h2>\n{each.body}\n</section>\n'
        for each in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{text(title)}</h1>\n{lead}\n<nav aria-label="Sections">{links}</nav>\n'
        f"<main>\n{parts}</main>\n</body>\n</html>\n"
    )


def text(words: str) -> str:
    """Any text as HTML: nothing in it is markup, and nothing in it acts."""
    return escape(visible(words))


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text; ``kind`` is a class of the page's style."""
    return f"<p{_class(kind)}>{text(words)}</p>"


def picture(svg: str, caption: str) -> str:
    """A picture with what it shows below it; wide ones are scrolled."""
    return (
        f'<figure><div class="scroll">{svg}</div><figcaption>{text(caption)}</figcaption></figure>'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A table of plain texts; the first column names the row, those in ``right`` hold numbers."""
    classes = [_class("right" if head in right else "") for head in heads]
    top = "".join(
        f'<th scope="col"{kind}>{text(head)}</th>'
        for head, kind in zip(heads, classes, strict=True)
    )
    lines = []
    for first, *others in rows:
        cells = "".join(
            f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(others, classes[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n'
        "</tbody></table></div>"
    )


def folded(title: str, content: str) -> str:
    """HTML that the reader opens; the browser does that without a script."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"


def items(words: Iterable[str]) -> str:
    """A list of plain texts."""
    return "<ul>" + "".join(f"<li>{text(each)}</li>" for each in words) + "</ul>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
