"""Maps of all pairs of blocks: colours and numbers of the data, a grid of matrices and initialisations."""

from itertools import product

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from hessdiag import HessdiagError
from hessdiag.results.numbers import short
from hessdiag.results.setups import Setups
from hessdiag.view.plots import draw_heatmap, draw_heatmaps
from tests.view.figures import LONG, build_block, build_map, build_report, build_setups, readable, texts_of

INITS = ("fan-in", "fan-out", "arithmetic", "geometric")


def mesh(axes: Axes) -> QuadMesh:
    return next(c for c in axes.collections if isinstance(c, QuadMesh))


def maps(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_title(loc="left")]


def title(axes: Axes) -> str:
    return axes.get_title(loc="left").split("\n")[0]


def cells(axes: Axes) -> dict[tuple[int, int], str]:
    places = [t for t in axes.texts if t.get_horizontalalignment() == "center"]
    return {(round(t.get_position()[1] - 0.5), round(t.get_position()[0] - 0.5)): t.get_text() for t in places}


@pytest.fixture(scope="module")
def study() -> list[Setups]:
    """Two matrices by four initialisations, given in another order than they are drawn in."""
    kinds = product((("ggn", 0.0), ("hessian", 0.031)), zip(INITS, (0.9, 2.7, 1.4, 0.07), strict=True))
    return [
        build_setups(matrix=matrix, init=init, normalized=build_map(5, decades=decades), relative_error=error)
        for (matrix, error), (init, decades) in kinds
    ]


@pytest.fixture(scope="module")
def figure(study: list[Setups]) -> Figure:
    return draw_heatmaps(study)


def test_hessian_is_above_ggn_and_inits_stand_in_the_order_given(figure: Figure) -> None:
    readable(figure)
    at = {axes: axes.get_position() for axes in maps(figure)}
    rows = sorted({round(box.y0, 3) for box in at.values()}, reverse=True)
    for row, label in zip(rows, ("Hessian", "Gauss-Newton"), strict=True):
        across = sorted((axes for axes in at if round(at[axes].y0, 3) == row), key=lambda axes: at[axes].x0)
        assert [title(axes) for axes in across] == list(INITS)
        assert [axes.get_ylabel() for axes in across] == [label, "", "", ""]
    values = ("7.94", "501", "25.1", "1.17") * 2
    expected = [f"{init}\ndiagonal max/min {value}" for init, value in zip(INITS * 2, values, strict=True)]
    assert [t for t in texts_of(figure) if "diagonal max/min" in t] == expected
    assert "estimator error ≤ 3.1 %" in figure.get_supxlabel().replace("\n", " ")


def test_colours_are_those_of_the_data_on_one_scale_that_covers_all_values(study, figure: Figure) -> None:
    ((kind, low, high),) = {(type(m.norm).__name__, m.norm.vmin, m.norm.vmax) for m in map(mesh, maps(figure))}
    everything = np.concatenate([setups.normalized().ravel() for setups in study])
    assert kind == "LogNorm"
    assert (low, high) == pytest.approx((everything.min(), everything.max()), rel=1e-12)
    (bar,) = [axes for axes in figure.axes if axes not in maps(figure)]
    assert bar.get_ylim() == pytest.approx((low, high), rel=1e-12)
    for axes, setups in zip(maps(figure)[:4], study[4:], strict=True):
        np.testing.assert_allclose(mesh(axes).get_array(), setups.normalized(), rtol=1e-12)
        assert axes.yaxis_inverted()


def test_cells_print_their_values_or_are_grey_and_counted() -> None:
    values = np.array([[3.21, 0.0142, 0.0], [0.00142, 472.6, np.nan], [1.0, 1.0, np.inf]])
    figure = draw_heatmaps([build_setups(names=["a", "b", "c"], normalized=values)])
    (axes,) = maps(figure)
    printed = {(0, 0): "3.21", (0, 1): "0.0142", (1, 0): "0.00142", (1, 1): "473", (2, 0): "1.00", (2, 1): "1.00"}
    assert {place: text for place, text in cells(axes).items() if text} == printed
    assert mesh(axes).get_array().mask.tolist() == (~(np.isfinite(values) & (values > 0))).tolist()
    red, green, blue = to_rgb(axes.get_facecolor())
    assert red == green == blue
    assert "grey: zero or undefined" in figure.get_supxlabel().replace("\n", " ")
    readable(figure)


@pytest.mark.parametrize(("blocks", "printed"), [(1, 1), (8, 64), (9, 0)])
def test_numbers_are_printed_up_to_8_blocks(blocks: int, printed: int) -> None:
    figure = draw_heatmaps([build_setups(names=LONG[:blocks])])
    assert len(cells(maps(figure)[0])) == printed
    readable(figure)


def test_flat_empty_and_missing_maps_are_drawn(study) -> None:
    readable(draw_heatmaps([build_setups(normalized=np.full((5, 5), np.nan))]))
    (axes,) = maps(draw_heatmaps([build_setups(normalized=build_map(5, decades=0.05))]))
    norm = mesh(axes).norm
    assert norm.vmax / norm.vmin == pytest.approx(10)
    assert np.ptp(norm(mesh(axes).get_array())) < 0.06
    figure = draw_heatmaps([s for s in study if s.init in INITS[:2] and (s.matrix, s.init) != ("ggn", "fan-in")])
    assert len(maps(figure)) == 3
    readable(figure)
    first = next(axes for axes in maps(figure) if title(axes) == "fan-in")
    assert [label.get_text() for label in first.get_xticklabels()] == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    with pytest.raises(HessdiagError, match="at least one"):
        draw_heatmaps([])
    with pytest.raises(HessdiagError, match=r"two panels show matrix 'ggn' with init 'geometric'"):
        draw_heatmaps([build_setups(), build_setups()])
    with pytest.raises(HessdiagError, match="panels differ in batch_size: 1024 and 16; draw one experiment a figure"):
        draw_heatmaps([build_setups(), build_setups(init="fan-in", batch_size=16)])


def test_a_report_is_drawn_alone_with_as_many_names_as_fit() -> None:
    report = build_report([build_block("a.weight"), build_block("a.bias"), build_block("b.weight")],
                          normalized=np.array([[4.0, 0.5], [0.5, 1.0]]))  # fmt: skip
    figure = draw_heatmap(report)
    (axes,) = maps(figure)
    np.testing.assert_allclose(mesh(axes).get_array(), report.heatmap.normalized(), rtol=1e-12)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert "geometric\ndiagonal max/min 4.00" in texts_of(figure)
    several = draw_heatmaps([build_setups(names=LONG, init=init) for init in INITS[:2]])
    readable(several)
    assert len(maps(several)[0].get_yticklabels()) == 27
    with pytest.raises(HessdiagError, match="has no measured weights to draw a map of"):
        draw_heatmap(build_report([build_block("u.scale")], normalized=np.zeros((0, 0))))


def test_relative_maps_are_over_the_geometric_mean_of_their_diagonal(study) -> None:
    figure = draw_heatmaps(study[4:], relative=True)
    for axes, setups in zip(maps(figure), study[4:], strict=True):
        values = setups.normalized()
        level = np.exp(np.log(np.diagonal(values)).mean())
        np.testing.assert_allclose(mesh(axes).get_array(), values / level, rtol=1e-12)
        assert axes.get_title(loc="left").endswith(f"max/min {short(setups.spread)} · level {short(level)}")
    assert any("over the level" in text for text in texts_of(figure))
    ((low, high, cmap),) = {(m.norm.vmin, m.norm.vmax, m.cmap.name) for m in map(mesh, maps(figure))}
    drawn = np.concatenate([mesh(axes).get_array().ravel() for axes in maps(figure)])
    assert (low * high, high) == pytest.approx((1, max(drawn.max(), 1 / drawn.min())), rel=1e-12)
    assert min(matplotlib.colormaps[cmap](0.5)[:3]) > 0.9  # as the page
    balanced = build_setups(normalized=1e6 * build_map(5, decades=0.02))
    drawn = mesh(maps(draw_heatmaps([balanced], relative=True))[0])
    assert drawn.norm.vmax == pytest.approx(10**0.5)
    assert np.abs(drawn.norm(drawn.get_array()) - 0.5).max() < 0.02
    zeros = build_setups(names=["a", "b"], normalized=np.array([[0.0, 1.0], [1.0, 0.0]]))
    figure = draw_heatmaps([zeros], relative=True)
    assert mesh(maps(figure)[0]).get_array().mask.all()
