import math
from dataclasses import replace

import pytest

from hessdiag.experiments.operation_figure import SETTINGS, measure_setting, summary
from hessdiag.plots import draw_scaling
from hessdiag.results.operation_table import OperationRow, OperationTable
from tests.plots.conftest import assert_readable

ROWS = {"linear layer", "convolution", "skip connection", "average pooling", "max pooling", "dropout", "ReLU"}


def _setting(row, detail, reads="relu"):
    return next(s for s in SETTINGS if (s.row, s.detail, s.reads) == (row, detail, reads))


def test_every_row_of_the_papers_table_is_there():
    assert {s.row for s in SETTINGS} == ROWS | {"leaky ReLU", "sigmoid", "tanh"}
    assert len({(s.row, s.detail, s.reads) for s in SETTINGS}) == len(SETTINGS)


def test_where_the_paper_is_right():
    for row, detail, reads in (("dropout", "p 0.5", "relu"), ("average pooling", "kernel 2, stride 2", "centred")):
        found = measure_setting(_setting(row, detail, reads), draws=30, seed=0)
        assert (found.paper, found.verdict) == ("✓", "✓")
        assert found.low <= found.ratio <= found.high


def test_where_it_is_not():
    pooled = measure_setting(_setting("average pooling", "kernel 2, stride 2"), draws=30, seed=0)
    assert (pooled.paper, pooled.verdict) == ("✓", "✗")
    assert pooled.ratio == pytest.approx(1 + 3 / math.pi, rel=0.03)  # 1 + (K - 1) c, c = 1/π of ReLU outputs
    overlapping = measure_setting(_setting("convolution", "kernel 3, stride 1, padding 0"), draws=60, seed=0)
    assert (overlapping.paper, overlapping.verdict) == ("✗", "✓")


def test_more_draws_narrow_the_interval():
    setting = _setting("linear layer", "128 → 512")
    few, many = (measure_setting(setting, draws=draws, seed=0) for draws in (10, 160))
    assert 2 < (few.high - few.low) / (many.high - many.low) < 8  # 4 = √16 up to chance


def test_rows_come_back_from_json_and_are_drawn(tmp_path):
    row = OperationRow(
        row="dropout", detail="p 0.5", reads="relu", paper="✓", ratio=1.0, low=0.9, high=1.1, predicted=math.nan,
        verdict="✓", draws=5,
    )  # fmt: skip
    rows = (row, replace(row, verdict="✗", predicted=2.0))
    OperationTable(rows).to_json(tmp_path / "layers.json")
    back = OperationTable.from_json(tmp_path / "layers.json").blocks
    assert back[1] == rows[1]
    assert math.isnan(back[0].predicted)
    assert summary(OperationTable(rows))[3].endswith("| 2.00 | ✗ |")
    figure = draw_scaling(rows)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["dropout, p 0.5 (relu)  ✓"] * 2
    note = next(text.get_text() for text in figure.texts if text.get_gid() == "caption").replace("\n", " ")
    for mark in (
        "✓ the paper's table says that ς is kept, ✗ that it is not",
        "relu: those behind a ReLU",
        "bars: its 95 %",
    ):
        assert mark in note
    assert "centred:" not in note  # none reads that
    (legend,) = figure.legends
    said = ["measured, as the paper says", "measured, against the paper", "predicted by the calculus"]
    assert [text.get_text() for text in legend.get_texts()] == said
    assert_readable(figure)
