"""Every error of the node has a documented exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node import errors
from abps_node.exits import ExitCode, exit_code_for


def all_errors(base: type[errors.NodeError] = errors.NodeError) -> list[type[errors.NodeError]]:
    return [base, *(leaf for child in base.__subclasses__() for leaf in all_errors(child))]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NodeError, 1),
        (errors.TransportError, 1),
        (errors.ConfigError, 10),
        (errors.DataError, 11),
        (errors.KeyFileError, 12),
        (errors.BindError, 13),
        (errors.StoreError, 14),
        (errors.Superseded, 15),
        (errors.DiskFull, 17),
        (errors.Damaged, 18),
        (errors.BrokenRecord, 19),
        (errors.ReplayDiffers, 20),
    ],
)
def test_code_of_each_error(error: type[errors.NodeError], code: int) -> None:
    assert exit_code_for(error("text")) == code


def test_a_subclass_made_elsewhere_has_its_parents_code() -> None:
    class LayoutError(errors.ConfigError):
        pass

    assert exit_code_for(LayoutError("text")) is ExitCode.CONFIG


def test_no_error_passes_for_success_or_for_a_bug() -> None:
    for error in all_errors():
        # Some subclasses take more than a text; the code depends on the class alone.
        assert exit_code_for(error.__new__(error)) not in (0, 2, 3, 70)


def test_every_code_is_explained_and_fits_a_process_status() -> None:
    assert len({int(code) for code in ExitCode}) == len(ExitCode)
    for code in ExitCode:
        assert 0 <= code < 126, "126 and above belong to the shell"
        assert code.meaning and code.remedy


def test_committed_page_lists_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs/exit-codes.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {int(code)} | `{code.name}` | {code.meaning} |" in page
