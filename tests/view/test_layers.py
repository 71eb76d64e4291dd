import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.results.numbers import Z95
from hessdiag.view.plots import draw_layers

KEYS = ("gamma", "nu", "avg_sq_singular_value")


def points(figure: Figure) -> dict[str, Line2D]:
    """Markers by "block:quantity"."""
    return {line.get_gid(): line for line in figure.axes[0].lines if ":" in (line.get_gid() or "")}


def rows(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def bars(figure: Figure) -> list[list[float]]:
    return [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_gid() == "stderr"]


@pytest.fixture
def mlp(make_block, make_report):
    """Three layers with biases and a scalar, and a known number everywhere."""
    blocks = []
    for i, layer in enumerate(("fc1", "fc2", "fc3"), start=1):
        blocks += [
            make_block(f"{layer}.weight", gamma=1.0 * i, nu=10.0 * i, avg_sq_singular_value=0.1 * i),
            make_block(f"{layer}.bias", gamma=2.0 * i, nu=20.0 * i, avg_sq_singular_value=0.2 * i),
        ]
    return make_report([*blocks, make_block("fc3.scale", gamma=7.0)])


def test_every_number_is_drawn_at_its_value(mlp, readable):
    figure = draw_layers(mlp)
    drawn = points(figure)
    assert set(drawn) == {f"{block.name}:{key}" for block in mlp.blocks for key in KEYS}
    for block in mlp.blocks:
        for key in KEYS:
            assert drawn[f"{block.name}:{key}"].get_xdata()[0] == getattr(block, key)
    assert figure.axes[0].get_xscale() == "log"
    readable(figure)


def test_the_first_layer_is_on_top_and_biases_share_its_row(mlp):
    figure = draw_layers(mlp)
    assert rows(figure) == ["fc1", "fc2", "fc3"]
    axes = figure.axes[0]
    heights = [axes.transData.transform((1, tick))[1] for tick in axes.get_yticks()]
    assert heights == sorted(heights, reverse=True)
    drawn = points(figure)
    for key in KEYS:
        assert drawn[f"fc2.bias:{key}"].get_ydata()[0] == drawn[f"fc2.weight:{key}"].get_ydata()[0]
        assert round(drawn[f"fc2.weight:{key}"].get_ydata()[0]) == 1


def test_a_bias_among_several_weights_has_its_own_row(make_block, make_report):
    names = ("rnn.weight_ih", "rnn.weight_hh", "rnn.bias")
    assert rows(draw_layers(make_report([make_block(name) for name in names]))) == list(names)


def test_weights_biases_and_scalars_look_different(mlp, texts_of):
    drawn = points(draw_layers(mlp))
    weight, bias, scalar = (drawn[f"{name}:gamma"] for name in ("fc3.weight", "fc3.bias", "fc3.scale"))
    assert weight.get_markersize() > bias.get_markersize() > scalar.get_markersize()
    assert bias.get_markerfacecolor() == "white"
    assert to_rgb(weight.get_markerfacecolor()) == to_rgb(scalar.get_markerfacecolor()) == to_rgb(bias.get_color())
    assert {"bias", "scalar"} <= set(texts_of(draw_layers(mlp)))


def test_quantities_differ_in_colour_and_shape(mlp):
    drawn = [points(draw_layers(mlp))[f"fc1.weight:{key}"] for key in KEYS]
    assert len({line.get_color() for line in drawn}) == len({line.get_marker() for line in drawn}) == 3


def test_the_legend_gives_the_spread_and_stands_outside_the_data(mlp, texts_of):
    figure = draw_layers(mlp)
    for text in ("γ, scaling factor", "σ², average squared singular value", "ν, weight-gradient ratio"):
        assert any(t.startswith(text) and t.endswith("max/min 3.00") for t in texts_of(figure))
    legend = figure.axes[0].get_legend()
    assert not legend.get_window_extent().overlaps(figure.axes[0].get_window_extent())


def test_bars_are_1_96_standard_errors_where_there_is_an_error(make_block, make_report, texts_of):
    exact, noisy = make_block("a.weight"), make_block("b.weight", avg_sq_singular_value=2.0, stderr=0.1)
    figure = draw_layers(make_report([exact, noisy]))
    assert bars(figure) == [pytest.approx([2.0 - Z95 * 0.1, 2.0 + Z95 * 0.1])]
    assert any("± 1.96 stderr" in text for text in texts_of(figure))
    assert not any("stderr" in text for text in texts_of(draw_layers(make_report([exact]))))


def test_a_bar_that_reaches_0_runs_to_the_edge(make_block, make_report):
    figure = draw_layers(make_report([make_block("a.weight", avg_sq_singular_value=2.0, stderr=5.0)]))
    ((low, high),) = bars(figure)
    assert low == figure.axes[0].get_xlim()[0] > 0
    assert high == pytest.approx(2.0 + Z95 * 5.0)


def test_the_weights_set_the_scale_and_what_is_far_beyond_is_an_arrow(make_block, make_report, readable, texts_of):
    weights = [make_block(f"{layer}.weight", gamma=1.0, nu=3.0, avg_sq_singular_value=10.0) for layer in "abc"]
    biases = [
        make_block("a.bias", gamma=1e9, nu=2.0, avg_sq_singular_value=1e-9, stderr=1e-10),
        make_block("b.bias", gamma=95.0, nu=2.0, avg_sq_singular_value=1.0),  # within a decade of the weights
    ]
    figure = draw_layers(make_report([*weights, *biases]))
    axes, drawn = figure.axes[0], points(figure)
    low, high = axes.get_xlim()
    assert 1e-2 < low < 1.0 < 95.0 < high < 1e3
    assert drawn["b.bias:gamma"].get_xdata()[0] == 95.0
    for key, marker, side in (("gamma", ">", 1), ("avg_sq_singular_value", "<", 0)):
        arrow = drawn[f"a.bias:{key}"]
        assert arrow.get_marker() == marker
        assert arrow.get_xdata()[0] == axes.get_xlim()[side]
    assert bars(figure) == []  # that of the bias is as far away
    assert any("◁ ▷: beyond the axis" in t for t in texts_of(figure))
    readable(figure)


def test_without_weights_all_blocks_are_on_the_axis(make_block, make_report):
    figure = draw_layers(make_report([make_block("a.bias", gamma=1e-9), make_block("b.bias", gamma=1e9)]))
    low, high = figure.axes[0].get_xlim()
    assert low < 1e-9 < 1e9 < high
    assert {line.get_marker() for line in points(figure).values()} == {"o", "D", "s"}


def test_what_is_not_drawn_is_counted_in_the_caption(make_block, make_report, readable, texts_of):
    blocks = [
        make_block("a.weight", gamma=math.nan),
        make_block("a.bias", nu=math.nan),
        make_block("b.weight", nu=0.0, avg_sq_singular_value=math.inf),
        make_block("b.bias", nu=math.nan),
        *(make_block(f"{layer}.weight", nu=0.0) for layer in "cde"),
    ]
    figure = draw_layers(make_report(blocks))
    assert not {"a.weight:gamma", "a.bias:nu", "b.weight:nu", "b.weight:avg_sq_singular_value"} & set(points(figure))
    said = " ".join(texts_of(figure)).replace("\n", " ")
    for text in (
        "γ undefined in 1 weight",
        "σ² infinite in 1 weight",
        "ν zero in 4 weights",
        "ν undefined in every bias",
    ):
        assert text in said
    readable(figure)


def test_a_report_without_any_number_is_drawn(make_block, make_report, readable):
    block = make_block("a.weight", gamma=math.nan, nu=math.nan, avg_sq_singular_value=math.nan, stderr=math.nan)
    readable(draw_layers(make_report([block])))


@pytest.mark.parametrize("count", [1, 54])
def test_any_depth_is_readable(make_block, make_report, readable, count):
    rng = np.random.default_rng(0)
    names = [f"encoder.stages.{i // 9}.layers.{i % 9}.convolution.weight" for i in range(count)]
    readable(draw_layers(make_report([make_block(name, nu=rng.lognormal()) for name in names])))
