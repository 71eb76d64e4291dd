"""The figure of coverage: every sampled block once, where its share of seeds is."""

from pathlib import Path

import pytest

from hessdiag import plots
from hessdiag.plots import style
from hessdiag.results.coverage_study import CoverageRow, CoverageStudy


def row(**changes: object) -> CoverageRow:
    known = {"method": "sketch", "network": "MLP", "row": "a", "column": "a", "covered": 950, "seeds": 1000}
    rest = {"missed": 0.1, "bias": 0.0, "bias_stderr": 0.01, "stderr": 0.04, "spread": 0.04, "products": 60.0}
    return CoverageRow(**(known | rest | {"undecided": 0} | changes))


def test_rows_travel_as_json(tmp_path: Path) -> None:
    rows = [row(), row(column="b", covered=931)]
    CoverageStudy(tuple(rows)).to_json(tmp_path / "coverage.json")
    assert CoverageStudy.from_json(tmp_path / "coverage.json").rows == tuple(rows)


def test_wilsons_interval_in_closed_form() -> None:
    """Of 0 in 10, z²/(10 + z²) is the upper end."""
    low, high = row(covered=0, seeds=10).interval()
    assert low == pytest.approx(0, abs=1e-15)
    assert high == pytest.approx(1.959964**2 / (10 + 1.959964**2), rel=1e-6)


def test_each_sampled_block_is_a_dot_and_exact_ones_are_named() -> None:
    rows = [row(), row(column="b", covered=931), row(method="exact", stderr=0.0, spread=0.0)]
    figure = plots.draw_coverage(rows)
    (axes,) = figure.axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [0.95, 0.931]
    assert dots[0].get_markerfacecolor() != dots[1].get_markerfacecolor() == style.theme().page
    caption = next(text.get_text() for text in figure.texts if text.get_gid() == "caption")
    assert "always right to rounding: exact" in caption.replace("\n", " ")
