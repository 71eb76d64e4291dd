import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessdiag.view.plots import draw_ratios


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


@pytest.mark.parametrize("blocks", [1, 9, 16])
def test_there_is_one_readable_panel_a_block(make_setups, readable, blocks):
    names = [f"encoder.stages.{i // 9}.layers.{i % 9}.convolution.weight" for i in range(blocks)]
    figure = draw_ratios(make_setups(names=names))
    assert len(figure.axes) == blocks
    assert len({axes.get_title(loc="left") for axes in figure.axes}) == blocks
    readable(figure)


def test_the_reference_is_at_1_in_every_panel(make_setups):
    for axes in draw_ratios(make_setups()).axes:
        (line,) = by_gid(axes, "reference")
        assert list(line.get_xdata()) == [1.0, 1.0]


def test_median_and_range_are_those_of_the_data(make_setups):
    setups = make_setups()
    for axes, values in zip(draw_ratios(setups).axes, setups.columns["ratio"].T, strict=True):
        low, median, high = np.percentile(values, (5, 50, 95))
        assert by_gid(axes, "median")[0].get_xdata()[0] == pytest.approx(np.median(values), rel=1e-12)
        (band,) = by_gid(axes, "range")
        assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((low, high), rel=1e-12)
        assert panel_texts(axes) == [f"median {median:.3f}", f"5–95 %: {low:.3f}–{high:.2f}"]


@pytest.mark.parametrize("count", [1, 1000])
def test_every_set_up_is_in_a_bar(make_setups, count):
    figure = draw_ratios(make_setups(count=count))
    assert [sum(heights(axes)) for axes in figure.axes] == [count] * 5


def test_a_single_set_up_has_no_range(make_setups):
    setups = make_setups(count=1, ratio=np.array([[0.5, 0.81, 1.0, 2.0, 4.0]]))
    figure = draw_ratios(setups)
    assert panel_texts(figure.axes[1]) == ["one value: 0.810"]
    assert not by_gid(figure.axes[1], "range")


def test_values_without_a_place_are_counted(make_setups, readable):
    ratio = np.full((100, 3), 0.9)
    ratio[:2, 0] = np.nan
    ratio[2, 0] = np.inf
    ratio[:, 1] = np.nan
    ratio[:7, 2] = 0.0
    figure = draw_ratios(make_setups(names=["a", "b", "c"], ratio=ratio))
    some, none, zero = figure.axes
    assert panel_texts(some) == ["median 0.900", "5–95 %: 0.900–0.900", "3 undefined"]
    assert panel_texts(none) == ["no defined value", "100 undefined"]
    assert panel_texts(zero) == ["median 0.900", "5–95 %: 0–0.900", "7 zero"]
    assert by_gid(zero, "range")[0].get_x() == zero.get_xlim()[0]
    assert [sum(heights(axes)) for axes in figure.axes] == [97, 0, 93]
    readable(figure)


def test_panels_share_axes_that_hold_all_values_and_1(make_setups):
    ratio = np.geomspace(8.0, 64.0, 40).reshape(20, 2)
    figure = draw_ratios(make_setups(names=["a", "b"], ratio=ratio))
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    low, high = figure.axes[0].get_xlim()
    assert low < 1
    assert high >= 64
    assert [sum(heights(axes)) for axes in figure.axes] == [20, 20]


def tick_labels(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def test_ticks_are_powers_of_two_in_words_of_fractions(make_setups):
    figure = draw_ratios(make_setups(names=["a"], ratio=np.array([[0.3], [0.9], [3.5]])))
    assert tick_labels(figure) == ["1/4", "1/2", "1", "2", "4"]
    assert list(figure.axes[0].get_xticks()) == [0.25, 0.5, 1, 2, 4]
    assert figure.axes[0].get_xscale() == "log"


def test_a_wide_axis_has_few_ticks_and_keeps_1(make_setups, readable):
    figure = draw_ratios(make_setups(names=["a"] * 5, ratio=np.geomspace(1e-3, 1e6, 500).reshape(100, 5)))
    assert "1" in tick_labels(figure)
    assert 3 <= len(tick_labels(figure)) <= 7
    readable(figure)


def test_long_numbers_do_not_squeeze_the_panels(make_setups, readable):
    ratio = 2500 * np.random.default_rng(0).lognormal(sigma=0.4, size=(50, 9))
    figure = draw_ratios(make_setups(names=[f"layer{i}.weight" for i in range(9)], ratio=ratio))
    readable(figure)
    assert figure.axes[0].get_position().width * figure.get_size_inches()[0] > 1.5
