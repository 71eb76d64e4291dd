from itertools import product

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from hessdiag import HessdiagError
from hessdiag.results.setups import Setups
from hessdiag.view.plots import draw_heatmap, draw_heatmaps
from hessdiag.view.plots.style import number
from tests.synthetic import build_map
from tests.view.conftest import build_setups

INITS = ("fan-in", "fan-out", "arithmetic", "geometric")
LONG = tuple(f"encoder.stages.{i // 9}.layers.{i % 9}.convolution.weight" for i in range(54))


def mesh(axes: Axes) -> QuadMesh:
    return next(c for c in axes.collections if isinstance(c, QuadMesh))


def maps(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_title(loc="left")]


def title(axes: Axes) -> str:
    return axes.get_title(loc="left").split("\n")[0]


def colourbar(figure: Figure) -> Axes:
    (bar,) = [axes for axes in figure.axes if not axes.get_title(loc="left")]
    return bar


def cells(axes: Axes) -> dict[tuple[int, int], str]:
    """What is printed in each cell, by row and column."""
    places = [t for t in axes.texts if t.get_horizontalalignment() == "center"]
    return {(round(t.get_position()[1] - 0.5), round(t.get_position()[0] - 0.5)): t.get_text() for t in places}


@pytest.fixture(scope="module")
def study() -> list[Setups]:
    """Two matrices by four initialisations, given in another order than they are drawn in."""
    return [
        build_setups(
            matrix=matrix,
            init=init,
            normalized=build_map(5, decades=decades),
            relative_error=0.031 if matrix == "hessian" else 0.0,
            method="probe" if matrix == "hessian" else "exact",
        )
        for matrix, (init, decades) in product(("ggn", "hessian"), zip(INITS, (0.9, 2.7, 1.4, 0.07), strict=True))
    ]


@pytest.fixture(scope="module")
def figure(study: list[Setups]) -> Figure:
    return draw_heatmaps(study)


@pytest.fixture(scope="module")
def relative(study: list[Setups]) -> Figure:
    return draw_heatmaps(study, relative=True)


def test_hessian_is_above_ggn_and_inits_stand_in_the_order_given(figure, readable, texts_of):
    readable(figure)
    at = {axes: axes.get_position() for axes in maps(figure)}
    rows = sorted({round(box.y0, 3) for box in at.values()}, reverse=True)
    for row, label in zip(rows, ("Hessian", "Gauss-Newton (GGN)"), strict=True):
        across = sorted((axes for axes in at if round(at[axes].y0, 3) == row), key=lambda axes: at[axes].x0)
        assert [title(axes) for axes in across] == list(INITS)
        assert across[0].get_ylabel().startswith(label)
    values = ("7.94", "501", "25.1", "1.17") * 2
    expected = [f"{init}\ndiagonal max/min {value}" for init, value in zip(INITS * 2, values, strict=True)]
    texts = texts_of(figure)
    assert [t for t in texts if "diagonal max/min" in t] == expected
    assert {"Hessian\nestimator error ≤ 3.10 %", "Gauss-Newton (GGN)\nexact"} <= set(texts)


def test_colours_are_those_of_the_data_on_one_scale_that_covers_all_values(study, figure):
    norms = {(type(m.norm).__name__, m.norm.vmin, m.norm.vmax) for m in map(mesh, maps(figure))}
    everything = np.concatenate([setups.normalized().ravel() for setups in study])
    ((kind, low, high),) = norms
    assert kind == "LogNorm"
    assert (low, high) == pytest.approx((everything.min(), everything.max()), rel=1e-12)
    assert colourbar(figure).get_ylim() == pytest.approx((low, high), rel=1e-12)
    hessian = [setups for setups in study if setups.matrix == "hessian"]
    for axes, setups in zip(maps(figure)[:4], hessian, strict=True):
        np.testing.assert_allclose(mesh(axes).get_array(), setups.normalized(), rtol=1e-12)
        assert axes.yaxis_inverted()


@pytest.mark.parametrize(
    ("errors", "text"), [((0.02, 0.05, 0.0), "estimator error ≤ 5.00 %"), ((np.nan,), "estimator error unknown")]
)
def test_a_row_says_its_largest_error(errors, text, make_setups):
    figure = draw_heatmaps([make_setups(init=init, relative_error=e) for init, e in zip(INITS, errors, strict=False)])
    assert [a.get_ylabel() for a in maps(figure) if a.get_ylabel()] == [f"Gauss-Newton (GGN)\n{text}"]


def test_cells_print_their_values(make_setups):
    values = np.array([[3.21, 0.0142], [0.00142, 472.6]])
    (axes,) = maps(draw_heatmaps([make_setups(names=["a", "b"], normalized=values)]))
    assert cells(axes) == {(0, 0): "3.21", (0, 1): "0.0142", (1, 0): "1.42e-3", (1, 1): "473"}


@pytest.mark.parametrize(("blocks", "printed"), [(1, 1), (8, 64), (9, 0)])
def test_numbers_are_printed_up_to_8_blocks(make_setups, readable, blocks, printed):
    figure = draw_heatmaps([make_setups(names=LONG[:blocks])])
    assert len(cells(maps(figure)[0])) == printed
    readable(figure)


def test_cells_without_a_colour_are_grey_and_counted(make_setups, readable, texts_of):
    values = np.array([[0.0, np.nan, 1.0], [np.nan, 2.0, 1.0], [1.0, 1.0, np.inf]])
    figure = draw_heatmaps([make_setups(names=["a", "b", "c"], normalized=values)])
    (axes,) = maps(figure)
    assert mesh(axes).get_array().mask.tolist() == (~(np.isfinite(values) & (values > 0))).tolist()
    red, green, blue = to_rgb(axes.get_facecolor())
    assert red == green == blue
    assert any("grey: 4 cells zero or undefined" in text for text in texts_of(figure))
    readable(figure)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_map_without_any_value_is_drawn(make_setups, readable, value):
    readable(draw_heatmaps([make_setups(normalized=np.full((5, 5), value))]))


def test_a_flat_map_looks_flat(make_setups, make_map):
    (axes,) = maps(draw_heatmaps([make_setups(normalized=make_map(5, decades=0.05))]))
    norm = mesh(axes).norm
    assert norm.vmax / norm.vmin == pytest.approx(10)
    assert np.ptp(norm(mesh(axes).get_array())) < 0.06


def test_a_missing_combination_leaves_a_gap_and_labels_move_up(study, readable):
    figure = draw_heatmaps([s for s in study if (s.matrix, s.init) != ("ggn", "fan-in")])
    assert len(maps(figure)) == 7
    readable(figure)
    first = next(a for a in maps(figure) if title(a) == "fan-in")
    assert [label.get_text() for label in first.get_xticklabels()] == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    second_row = [a for a in maps(figure) if a.get_ylabel().startswith("Gauss-Newton")]
    assert [title(a) for a in second_row] == ["fan-out"]


def test_what_cannot_share_a_figure_is_refused(make_setups):
    with pytest.raises(HessdiagError, match="at least one"):
        draw_heatmaps([])
    with pytest.raises(HessdiagError, match=r"'ggn' with init 'geometric'.*once"):
        draw_heatmaps([make_setups(), make_setups(seed=100)])
    with pytest.raises(HessdiagError, match="differ in per: 'example' and 'batch'"):
        draw_heatmaps([make_setups(), make_setups(init="fan-in", per="batch")])


def test_a_report_is_drawn_as_setups_are(make_block, make_report, readable, texts_of):
    values = np.array([[3.0, 0.5], [0.5, 12.0]])
    report = make_report([make_block("a.weight"), make_block("a.bias"), make_block("b.weight")], normalized=values)
    figure = draw_heatmap(report)
    (axes,) = maps(figure)
    np.testing.assert_allclose(mesh(axes).get_array(), report.heatmap.normalized(), rtol=1e-12)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert "geometric\ndiagonal max/min 4.00" in texts_of(figure)
    readable(figure)


def test_many_names_are_thinned_until_they_fit(make_block, make_report, make_setups, readable):
    single = draw_heatmap(make_report([make_block(name) for name in LONG]))
    readable(single)
    assert len(maps(single)[0].get_yticklabels()) == 54
    several = draw_heatmaps([make_setups(names=LONG, init=init) for init in INITS])
    readable(several)
    assert len(maps(several)[0].get_yticklabels()) == 27


def test_a_report_without_weights_has_no_map(make_block, make_report) -> None:
    with pytest.raises(HessdiagError, match="has no weight block to draw a map of"):
        draw_heatmap(make_report([make_block("u.scale")], normalized=np.zeros((0, 0))))


def test_relative_maps_are_over_the_geometric_mean_of_their_diagonal(study, relative, texts_of):
    hessian = [setups for setups in study if setups.matrix == "hessian"]
    for axes, setups in zip(maps(relative)[:4], hessian, strict=True):
        values = setups.normalized()
        level = np.exp(np.log(np.diagonal(values)).mean())
        np.testing.assert_allclose(mesh(axes).get_array(), values / level, rtol=1e-12)
        assert axes.get_title(loc="left").endswith(f"max/min {number(setups.spread)} · level {number(level)}")
    assert any("over the level" in text for text in texts_of(relative))


def test_the_relative_scale_is_symmetric_around_1_and_pale_there(relative):
    ((low, high, cmap),) = {(m.norm.vmin, m.norm.vmax, m.cmap.name) for m in map(mesh, maps(relative))}
    drawn = np.concatenate([mesh(axes).get_array().ravel() for axes in maps(relative)])
    assert low * high == pytest.approx(1, rel=1e-12)
    assert high == pytest.approx(max(drawn.max(), 1 / drawn.min()), rel=1e-12)
    assert min(matplotlib.colormaps[cmap](0.5)[:3]) > 0.9  # as the page


def test_a_relative_map_that_is_balanced_looks_so(make_setups, make_map):
    (axes,) = maps(draw_heatmaps([make_setups(normalized=1e6 * make_map(5, decades=0.02))], relative=True))
    drawn = mesh(axes)
    assert drawn.norm.vmax == pytest.approx(10**0.5)
    assert np.abs(drawn.norm(drawn.get_array()) - 0.5).max() < 0.02


def test_scale_of_a_relative_map_does_not_depend_on_the_loss(make_block, make_report):
    """Scaling the loss by 10 multiplies every entry by 100, and leaves the picture but for its level."""
    values = np.array([[3.0, 0.5], [0.5, 12.0]])
    blocks = [make_block("a.weight"), make_block("b.weight")]
    one, other = (
        maps(draw_heatmap(make_report(blocks, normalized=factor * values), relative=True))[0] for factor in (1, 100)
    )
    np.testing.assert_allclose(mesh(one).get_array(), values / 6, rtol=1e-12)
    np.testing.assert_allclose(mesh(other).get_array(), mesh(one).get_array(), rtol=1e-12)


def test_a_map_without_a_level_is_grey(make_setups, readable, texts_of):
    values = np.array([[0.0, 1.0], [1.0, 0.0]])
    figure = draw_heatmaps([make_setups(names=["a", "b"], normalized=values)], relative=True)
    readable(figure)
    assert mesh(maps(figure)[0]).get_array().mask.all()
    assert any("grey: 4 cells" in text for text in texts_of(figure))
