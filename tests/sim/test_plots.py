"""Pictures: files of both kinds, what is on them, and the same bits for the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import plots, results_files
from sim.runner import Cell, run
from sim.sources import Source
from sim.tables import table
from tests.support.command_line import abps

SOURCE = Source.of("synthetic", {"centers": 6, "rows": 60})


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    cells = [("fedavg", 1), ("fedavg", 2), ("abps", 1), ("abps+p+q+k1+div", 1)]
    return [
        run(Cell(name, seed, SOURCE, policy={"rounds": 3}, beliefs=name == "abps"))
        for name, seed in cells
    ]


def test_all_five_pictures_are_drawn_as_png_and_svg(
    results: list[dict[str, Any]], tmp_path: Path
) -> None:
    for each in results:
        results_files.write(
            results_files.file_of(tmp_path / "in", each["name"], each["seed"]), each
        )
    outcome = abps("sim", "plot", tmp_path / "in", "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    names = ("pareto", "rounds", "bytes", "isolation", "beliefs")
    wanted = {f"synthetic-{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == wanted
    assert sorted(Path(line).name for line in outcome.out.split()) == sorted(wanted)
    for path in (tmp_path / "out").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out" / "synthetic-pareto.svg").read_text()
    for name in ("fedavg", "abps", "abps+p+q+k1+div"):
        assert f"×  {name}</text>" in svg
    svg = (tmp_path / "out" / "synthetic-isolation.svg").read_text()
    assert ">rejected-by-filter</text>" in svg


def test_numbers_at_points_cover_neither_each_other_nor_a_point() -> None:
    # Five points on one spot, as a row and its control often are, and one beside them.
    points = np.array([[100.0, 50.0]] * 5 + [[104.0, 53.0]])
    places = points + np.array(plots._free_places(points))
    apart = np.abs(places[:, None] - np.concatenate([places, points])[None]) > plots._LABEL
    free = apart.any(-1)
    assert free[:, :6][~np.eye(6, dtype=bool)].all()
    assert free[:, 6:].all()
    assert (np.abs(places - points)[:, 0] > 8).all()


def test_what_is_not_drawn_is_said(results: list[dict[str, Any]], tmp_path: Path) -> None:
    results_files.write(tmp_path / "kept.json", results_files.summary(results))
    outcome = abps("sim", "plot", tmp_path / "kept.json", "--out", tmp_path / "out")
    assert outcome.code == 0
    for name in ("rounds", "bytes", "isolation", "beliefs"):
        assert f"synthetic: no picture «{name}»: " in outcome.err


def test_the_same_results_give_the_same_file(results: list[dict[str, Any]], tmp_path: Path) -> None:
    row = table(results)
    for folder in ("one", "two"):
        figure = plots.pareto(row, "synthetic")
        assert figure is not None
        (tmp_path / folder).mkdir()
        list(plots.save(figure, tmp_path / folder / "x"))
    for name in ("x.png", "x.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_curves_are_means_over_seeds(results: list[dict[str, Any]]) -> None:
    figure = plots.curves(results, ["fedavg"], "synthetic", over_bytes=True)
    assert figure is not None
    (line,) = figure.axes[0].lines
    both = [each["history"] for each in results if each["name"] == "fedavg"]
    np.testing.assert_allclose(line.get_ydata(), np.mean([each["auroc"] for each in both], 0))
    mib = np.cumsum(both[0]["bytes"]) / 6 / 2**20
    np.testing.assert_allclose(line.get_xdata(), mib)


def test_the_front_is_what_nobody_beats_in_both() -> None:
    points = [(1.0, 0.75), (0.0, 0.5), (0.5, 0.7), (0.6, 0.6), (1.0, 0.74), (2.0, 0.75)]
    assert plots._front(points) == [1, 2, 0]


def test_a_summary_gives_the_front_alone(results: list[dict[str, Any]], tmp_path: Path) -> None:
    results_files.write(tmp_path / "s.json", results_files.summary(results))
    outcome = abps("sim", "plot", tmp_path / "s.json", "--out", tmp_path / "out")
    assert [Path(line).name for line in outcome.out.split()] == [
        "synthetic-pareto.png",
        "synthetic-pareto.svg",
    ]
    outcome = abps("sim", "plot", tmp_path / "s.json", "--out", tmp_path, "--rows", "fedavgg")
    assert outcome.err.startswith("abps: --rows: found 'fedavgg', allowed: abps, ")


def test_curves_of_one_picture_differ_in_color_or_style() -> None:
    assert len({plots.line_of(number) for number in range(32)}) == 32
    assert len({plots.line_of(number)[1] for number in range(8)}) == 8
