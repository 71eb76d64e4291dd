"""Layers at their values, histograms of theory over measurement, and initialisations side by side."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.results.numbers import Z95
from hessdiag.results.setups import InitCheck, SchemeCheck, ranked
from hessdiag.view.plots import QUANTITIES, draw_init_check, draw_layers, draw_ratios
from tests.view.figures import LONG, build_block, build_report, build_setups, readable, texts_of


def points(figure: Figure) -> dict[str, Line2D]:
    return {line.get_gid(): line for line in figure.axes[0].lines if ":" in (line.get_gid() or "")}


def rows(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def bars(figure: Figure) -> list[list[float]]:
    found = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    return [segment[:, 0].tolist() for collection in found for segment in collection.get_segments()]


def test_every_number_is_drawn_at_its_value_on_the_row_of_its_layer() -> None:
    """Three layers with biases and a scalar, and a known number everywhere."""
    blocks = []
    for i, layer in enumerate(("fc1", "fc2", "fc3"), start=1):
        blocks += [
            build_block(f"{layer}.weight", gamma=1.0 * i, nu=10.0 * i, avg_sq_singular_value=0.1 * i),
            build_block(f"{layer}.bias", gamma=2.0 * i, nu=20.0 * i, avg_sq_singular_value=0.2 * i),
        ]
    report = build_report([*blocks, build_block("fc3.scale", gamma=7.0)])
    figure = draw_layers(report)
    drawn, axes = points(figure), figure.axes[0]
    for kind in ("weight", "bias", "scalar"):
        alike = [block for block in report.blocks if block.kind == kind]
        places = [2] if kind == "scalar" else [0, 1, 2]
        for series in QUANTITIES:
            line = drawn[f"{kind}:{series.key}"]
            assert list(line.get_xdata()) == [getattr(block, series.key) for block in alike]
            assert list(line.get_ydata()) == [place + series.offset for place in places]
    assert rows(figure) == ["fc1", "fc2", "fc3"]
    heights = [axes.transData.transform((1, tick))[1] for tick in axes.get_yticks()]
    assert (heights, axes.get_xscale()) == (sorted(heights, reverse=True), "log")
    weight, bias, scalar = (drawn[f"{kind}:gamma"] for kind in ("weight", "bias", "scalar"))
    assert to_rgb(bias.get_markerfacecolor()) == to_rgb("white") != to_rgb(weight.get_markerfacecolor())
    assert scalar.get_markersize() < bias.get_markersize() < weight.get_markersize()
    assert {"bias", "scalar"} <= set(texts_of(figure))
    assert "γ, scaling factor of the theory\nmax/min 3.00" in texts_of(figure)
    readable(figure)


def test_sampled_values_have_bars_that_may_reach_0_and_any_depth_is_readable() -> None:
    sizes = {"a": (1.0, 0.0), "b": (2.0, 0.1), "c": (2.0, 5.0)}
    blocks = [build_block(f"{n}.weight", avg_sq_singular_value=v, stderr=e) for n, (v, e) in sizes.items()]
    figure = draw_layers(build_report(blocks))
    assert bars(figure) == [pytest.approx([2 - Z95 * e, 2 + Z95 * e]) for e in (0.1, 5.0)]
    low, high = figure.axes[0].get_xlim()
    assert 0 < low < 1 < 2 + Z95 * 5 < high
    assert any("± 1.96 stderr" in text for text in texts_of(figure))
    assert not any("stderr" in text for text in texts_of(draw_layers(build_report(blocks[:1]))))
    names = ("rnn.weight_ih", "rnn.weight_hh", "rnn.bias")
    assert rows(draw_layers(build_report([build_block(name) for name in names]))) == list(names)
    rng = np.random.default_rng(0)
    readable(draw_layers(build_report([build_block(name, nu=rng.lognormal()) for name in LONG])))


def test_what_is_zero_or_undefined_is_not_drawn() -> None:
    blocks = [build_block("a.weight", gamma=math.nan), build_block("a.bias", nu=math.nan)]
    figure = draw_layers(build_report([*blocks, build_block("b.weight", nu=0.0, avg_sq_singular_value=math.inf)]))
    assert [len(points(figure)[f"weight:{series.key}"].get_xdata()) for series in QUANTITIES] == [1, 1, 1]
    readable(figure)
    undefined = dict.fromkeys(("gamma", "nu", "avg_sq_singular_value", "stderr"), math.nan)
    readable(draw_layers(build_report([build_block("a.weight", **undefined)])))


def by_gid(axes: Axes, gid: str) -> list:
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def heights(axes: Axes) -> list[float]:
    return [bar.get_height() for bar in axes.patches if bar.get_gid() is None]


def panel_texts(axes: Axes) -> list[str]:
    return [*filter(None, [*axes.get_title(loc="left").split("\n")[1:], *(text.get_text() for text in axes.texts)])]


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


def build_scheme(init: str, factor: float) -> SchemeCheck:
    """Five blocks whose means are 1, ..., factor in σ², γ and ν, with little noise over 8 trials."""
    rng = np.random.default_rng(len(init))
    values = np.geomspace(1, factor, 5) * rng.lognormal(sigma=0.05, size=(8, 5))
    setups = build_setups(count=8, init=init, normalized=np.sqrt(np.outer(values.mean(0), values.mean(0))))
    for key in ("avg_sq_singular_value", "gamma", "nu"):
        setups.columns[key][:] = values
    return SchemeCheck(setups=setups, output_sq=np.ones(8), output_variance=np.ones(8))


@pytest.mark.parametrize("count", [1, 4])
def test_every_initialisation_has_a_map_the_most_balanced_first(count: int) -> None:
    schemes = [build_scheme(f"init{number}", 2.0 * 3**number) for number in range(count)]
    check = InitCheck(init=f"init{count - 1}", schemes=ranked(schemes))
    figure = draw_init_check(check)
    readable(figure)
    maps = [axes for axes in figure.axes if axes.get_title(loc="left")]
    across = sorted(maps, key=lambda axes: axes.get_position().x0)
    assert [axes.get_title(loc="left").split("\n")[0] for axes in across] == [each.init for each in check.schemes]
    for axes, scheme in zip(across, check.schemes, strict=True):
        values = scheme.setups.normalized()
        level = np.exp(np.log(np.diagonal(values)).mean())
        np.testing.assert_allclose(axes.collections[0].get_array(), values / level, rtol=1e-12)
