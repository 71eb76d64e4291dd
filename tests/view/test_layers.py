"""γ, ν and σ² of every layer at their values, first layer on top."""

import math

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.results.numbers import Z95
from hessdiag.view.plots import draw_layers
from hessdiag.view.plots.layers import QUANTITIES
from tests.view.figures import LONG, build_block, build_report, readable, texts_of


def points(figure: Figure) -> dict[str, Line2D]:
    """Markers by "kind:quantity"."""
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
    assert heights == sorted(heights, reverse=True)
    assert axes.get_xscale() == "log"
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
    blocks = [
        build_block("a.weight", gamma=math.nan),
        build_block("a.bias", nu=math.nan),
        build_block("b.weight", nu=0.0, avg_sq_singular_value=math.inf),
    ]
    figure = draw_layers(build_report(blocks))
    assert [len(points(figure)[f"weight:{series.key}"].get_xdata()) for series in QUANTITIES] == [1, 1, 1]
    readable(figure)
    undefined = dict.fromkeys(("gamma", "nu", "avg_sq_singular_value", "stderr"), math.nan)
    readable(draw_layers(build_report([build_block("a.weight", **undefined)])))
