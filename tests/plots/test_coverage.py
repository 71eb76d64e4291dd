"""How often intervals hold the truth: kept, read back, and a dot a block."""

import math
from pathlib import Path

import pytest

from hessdiag.plots import draw_coverage
from hessdiag.results.coverage_study import CoverageRow, CoverageStudy


def build_row(covered: int, *, row: str = "a", column: str = "a", spread: float = 0.1) -> CoverageRow:
    return CoverageRow(
        method="sketch",
        network="mlp",
        row=row,
        column=column,
        covered=covered,
        seeds=100,
        missed=0.0,
        bias=0.01,
        bias_stderr=math.nan,
        stderr=0.05,
        spread=spread,
        products=12.0,
        undecided=0,
    )


def test_a_study_comes_back_from_its_file(tmp_path: Path) -> None:
    CoverageStudy((build_row(95), build_row(90, column="b"))).to_json(tmp_path / "coverage.json")
    back = CoverageStudy.from_json(tmp_path / "coverage.json")
    assert [(row.covered, row.column) for row in back.rows] == [(95, "a"), (90, "b")]
    assert math.isnan(back.rows[0].bias_stderr)


def test_the_interval_is_wilsons() -> None:
    p, z2 = 0.95, 1.959963984540054**2
    for end in build_row(95).interval():  # the ends are where the truth lies 1.96 of its own standard errors away
        assert (end - p) ** 2 == pytest.approx(z2 * end * (1 - end) / 100, rel=1e-9)


def test_there_is_a_dot_a_block_at_its_share() -> None:
    rows = [build_row(95), build_row(90, column="b"), build_row(100, spread=1e-12)]
    (axes,) = draw_coverage(rows).axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(dot.get_xdata()[0]) for dot in dots] == [0.95, 0.9]  # what is always right is left out
    assert dots[1].get_markerfacecolor() == "white" != dots[0].get_markerfacecolor()
