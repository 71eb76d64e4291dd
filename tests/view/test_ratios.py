"""Histograms of theory over measurement: every trial in a bar, with the statistics of the data."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from hessdiag.view.plots import draw_ratios
from tests.view.figures import LONG, build_setups, readable


def by_gid(axes: Axes, gid: str) -> list:
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def heights(axes: Axes) -> list[float]:
    return [bar.get_height() for bar in axes.patches if bar.get_gid() is None]


def panel_texts(axes: Axes) -> list[str]:
    """The lines above a panel after its name, and the texts in it."""
    return [
        *filter(None, axes.get_title(loc="left").split("\n")[1:]),
        *(t.get_text() for t in axes.texts if t.get_text()),
    ]


@pytest.mark.parametrize("blocks", [1, 9])
def test_there_is_one_readable_panel_a_block(blocks: int) -> None:
    figure = draw_ratios(build_setups(names=LONG[:blocks]))
    assert len({axes.get_title(loc="left") for axes in figure.axes}) == blocks == len(figure.axes)
    readable(figure)


def test_reference_median_and_range_are_where_they_should_be() -> None:
    setups = build_setups()
    for axes, values in zip(draw_ratios(setups).axes, setups.columns["ratio"].T, strict=True):
        low, median, high = np.percentile(values, (5, 50, 95))
        assert list(by_gid(axes, "reference")[0].get_xdata()) == [1.0, 1.0]
        assert by_gid(axes, "median")[0].get_xdata()[0] == pytest.approx(np.median(values), rel=1e-12)
        (band,) = by_gid(axes, "range")
        assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((low, high), rel=1e-12)
        assert panel_texts(axes) == [f"median {median:.3f}", f"5–95 %: {low:.3f}–{high:.2f}"]
        assert sum(heights(axes)) == 100
    figure = draw_ratios(build_setups(count=1, ratio=np.array([[0.5, 0.81, 1.0, 2.0, 4.0]])))
    assert panel_texts(figure.axes[1]) == ["median 0.810", "5–95 %: 0.810–0.810"]
    assert not by_gid(figure.axes[1], "range")
    assert [sum(heights(axes)) for axes in figure.axes] == [1] * 5


def test_values_without_a_place_are_counted_and_panels_share_an_axis() -> None:
    ratio = np.full((100, 3), 0.9)
    ratio[:2, 0] = np.nan
    ratio[2, 0] = np.inf
    ratio[:, 1] = np.nan
    ratio[:7, 2] = 0.0
    figure = draw_ratios(build_setups(names=["a", "b", "c"], ratio=ratio))
    some, none, zero = figure.axes
    assert panel_texts(some) == ["median 0.900", "5–95 %: 0.900–0.900", "3 undefined"]
    assert panel_texts(none) == ["no defined value", "100 undefined"]
    assert panel_texts(zero) == ["median 0.900", "5–95 %: 0–0.900", "7 zero"]
    assert by_gid(zero, "range")[0].get_x() == zero.get_xlim()[0]
    assert [sum(heights(axes)) for axes in figure.axes] == [97, 0, 93]
    readable(figure)
    figure = draw_ratios(build_setups(names=["a"] * 5, ratio=np.geomspace(8.0, 6.4e6, 500).reshape(100, 5)))
    assert len({axes.get_xlim() for axes in figure.axes}) == len({axes.get_ylim() for axes in figure.axes}) == 1
    low, high = figure.axes[0].get_xlim()
    assert low < 1 < 6.4e6 <= high
    assert figure.axes[0].get_xscale() == "log"
    assert [sum(heights(axes)) for axes in figure.axes] == [100] * 5
    readable(figure)
    assert figure.axes[0].get_position().width * figure.get_size_inches()[0] > 1.4
