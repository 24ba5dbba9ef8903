"""The report: one page that needs nothing, holds all sections, and says what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from abps_node.errors import NodeError
from launch.layout import FederationLayout
from launch.view.page import text
from launch.view.report import write_report
from protocol.contract import Contract
from tests.support import half_dead as made
from tests.support.browser import Browser, chromium
from tests.support.command_line import abps
from tests.support.layouts import small_federation
from tests.support.records import Chronicle

SECTIONS = [
    "attention", "auroc", "rounds", "partners", "isolation", "beliefs", "bytes", "centers",
]  # fmt: skip
PICTURES = ["auroc", "rounds0", "partners", "isolation", "beliefs", "bytes"]
VOID = {"meta", "br", "img", "link"}


class Page(HTMLParser):
    """Tags that are closed in order, the texts between them, and every attribute."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words = ""
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def of(self, tag: str, name: str) -> list[str]:
        return [value for each, key, value in self.attributes if (each, key) == (tag, name)]


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return made.half_dead(tmp_path / "fed")


def written(layout: FederationLayout) -> Page:
    return Page(write_report(layout).read_text(encoding="utf-8"))


def test_all_sections_and_pictures_of_a_half_dead_federation(layout: FederationLayout) -> None:
    page = written(layout)
    assert page.of("section", "id") == SECTIONS
    assert page.of("nav", "aria-label") == ["Sections"]
    labels = page.of("svg", "aria-labelledby")
    assert labels == [f"{name}-title {name}-desc" for name in PICTURES]
    assert page.of("svg", "role") == ["img"] * len(PICTURES)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "an id is there once"
    for words in (
        "Not all centers have finished: these numbers are not the last.",
        "No federated test report: absent, broken, choosy, dead, held, lonely, stopped.",
        "Never found a partner: choosy, lonely.",
        "In 1 of 1 center the two intervals overlap: there this run names no winner.",
        "is damaged or not a state file",
        "0.600 (0.50–0.70)",
        "why below-threshold <b>&",
    ):
        assert words in page.words, words


def test_nothing_is_fetched_and_nothing_runs(layout: FederationLayout) -> None:
    page = written(layout)
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "iframe", "object"}
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value[:60])
        if name == "style":
            assert "http" not in value and "@import" not in value
    (policy,) = [v for v in page.of("meta", "content") if "default-src" in v]
    assert policy.startswith("default-src 'none'")


def test_what_peers_and_people_wrote_is_text(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    far, near = layout.centers
    name = "</style><script>alert(1)</script> \u202e"
    values = {**layout.contract.model_dump(), "name": name}
    contract = Contract.model_validate(values)
    assert contract.name == name
    made.write(near, made.some(near, 1), pid=1)
    made.gone(near)
    (near.state_dir / "console.log").write_text("</svg><script>alert(2)</script>\x1b[2J\n")
    page = written(layout)
    assert "last words: </svg><script>alert(2)</script>\\x1b[2J" in page.words
    assert text(name) == "&lt;/style&gt;&lt;script&gt;alert(1)&lt;/script&gt; \\u202e"
    assert far.id in page.words


def test_a_federation_that_has_not_begun(tmp_path: Path) -> None:
    page = written(small_federation(tmp_path / "fed"))
    assert page.of("section", "id") == SECTIONS
    assert page.of("svg", "role") == []
    for words in ("No round is committed yet.", "Nothing has been sent yet.", "never started"):
        assert words in page.words


def test_only_one_class(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    for center in layout.centers:
        made.write(center, made.finished(center))
        from abps_node.store import Store

        with Store.open(center.state_dir, center.id, center.federation.contract) as store:
            store.begin_incarnation()
            for name in ("alone", "federated"):
                store.save_report(name, made.report(None))
    page = written(layout)
    assert "Only one class in the test split, so that AUROC is undefined: far, near." in page.words
    assert "one class only" in page.words
    assert "No center has a test report with an AUROC yet." in page.words


def test_names_of_many_centers_are_all_there(tmp_path: Path) -> None:
    names = [f"c{number:03d}" for number in range(60)]
    layout = small_federation(tmp_path / "fed", names, rounds=9)
    for place, center in enumerate(layout.centers):
        chronicle = Chronicle(center.id, center.federation.contract)
        commits = [chronicle.with_partners({names[place - 1]: 0.01}), chronicle.resting()]
        made.write(center, commits, reports=("alone", "federated"))
    content = write_report(layout).read_text(encoding="utf-8")
    page = Page(content)
    assert "60 causes, by center" in page.words
    assert page.of("details", "open") == []
    pictures = dict(zip(PICTURES, content.split("<svg")[1:], strict=True))
    for name in ("auroc", "partners", "beliefs", "bytes"):
        assert all(f">{center}</text>" in pictures[name] for center in names), name


def test_the_file_is_written_whole_or_not_at_all(layout: FederationLayout, tmp_path: Path) -> None:
    outcome = abps("launch", "report", layout.directory, "--out", tmp_path / "x.html")
    assert (outcome.code, outcome.out) == (0, f"wrote  {tmp_path}/x.html\n")
    assert not list(tmp_path.glob(".x.html*"))
    with pytest.raises(NodeError, match=r"nowhere/x\.html: the report cannot be written"):
        write_report(layout, tmp_path / "nowhere" / "x.html")


# In a real browser -------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("NO CHROMIUM: the report is not seen in a browser; `make services` installs it")
    yield Browser(tmp_path)


@pytest.mark.slow
def test_the_browser_sees_all_sections_and_complains_of_nothing(
    layout: FederationLayout, browser: Browser
) -> None:
    path = write_report(layout)
    assert browser.complaints(path) == []
    seen = browser.document(path)
    assert re.findall(r'<section id="([a-z]+)"', seen) == SECTIONS
    assert seen.count("<svg") == len(PICTURES)


@pytest.mark.slow
def test_the_browser_would_complain(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
    page.write_text(f"<html><head>{policy}</head><body><script>1</script></body></html>")
    assert any("violates" in line for line in browser.complaints(page))


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pictures_are_drawn_on_paper_that_is_light_or_dark(
    layout: FederationLayout, browser: Browser, dark: bool
) -> None:
    shot = browser.screenshot(write_report(layout), 1250, 5000, dark=dark)
    pixels = imread(shot)[:, :, :3]
    assert pixels.shape == (5000, 1250, 3)
    paper = pixels[2, 2]
    assert (paper.mean() < 0.2) == dark
    drawn = np.abs(pixels - paper).max(axis=2) > 0.2
    # Words and pictures down to the end, not one blank band where a picture should be.
    last = int(np.flatnonzero(drawn.any(axis=1))[-1])
    assert last > 2500
    bands = drawn[: last + 1].any(axis=1)
    blank = max(map(len, "".join("x" if row else "." for row in bands).split("x")))
    assert blank < 200
    assert 0.01 < drawn[:last].mean() < 0.5
    blue = (pixels[:, :, 2] - pixels[:, :, 0] > 0.3).sum()
    assert blue > 2000, "lines of the pictures"
