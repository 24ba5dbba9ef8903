"""The committed reference pages are what the models say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node.cli.reference import PAGES, configuration_page, write
from abps_node.config_files import CenterFile, FederationFile
from abps_node.config_text import properties, resolved
from protocol.presets import PRESETS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_committed_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), "run: python -m abps_node.cli.reference docs"


def test_write_makes_all_pages(tmp_path: Path) -> None:
    write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("model", [CenterFile, FederationFile])
def test_every_key_says_what_it_means(model: type[CenterFile] | type[FederationFile]) -> None:
    root = model.model_json_schema()
    silent = [
        key
        for key, node, _ in properties(root, root)
        if not (node.get("description") or resolved(node, root).get("description"))
    ]
    assert silent == []


def test_every_key_and_preset_stands_on_the_page() -> None:
    page = configuration_page()
    for model in (CenterFile, FederationFile):
        root = model.model_json_schema()
        for key, _, _ in properties(root, root):
            assert f"| `{key.split('.')[-1]}` |" in page
    for preset in PRESETS:
        assert f"| `{preset}` |" in page
