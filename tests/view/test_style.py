"""What figures share: captions, names, files that are whole, and settings of the user left alone."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import matplotlib.image
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from hessdiag import HessdiagError
from hessdiag.view import plots
from hessdiag.view.plots import QUANTITIES, short_labels
from tests.view.figures import build_block, build_report, build_setups, texts_of

WEIGHTS = [build_block("a.weight"), build_block("b.weight")]


def test_caption_has_every_setting_and_lists_what_differs() -> None:
    assert plots.caption(build_setups(seed=3)) == (
        "lenet · geometric initialisation · random-quadratic loss · Gauss-Newton per example · batch size 1024"
        " · 100 trials · exact method · seeds 3–102"
    )
    report = build_report(WEIGHTS[:1], matrix="hessian", per="batch", method="probe", seed=5)
    assert plots.caption(report).endswith("Hessian per batch · batch size 64 · 1 trial · probe method · seed 5")
    first = build_setups(init="fan-in", matrix="hessian", method="probe")
    text = plots.caption(first, build_setups(), build_setups(init="arithmetic"))
    assert "fan-in, geometric and arithmetic initialisation" in text
    assert "Hessian per example and Gauss-Newton per example" in text
    assert "probe and exact method" in text
    assert text.count("random-quadratic") == 1


def test_figures_carry_their_caption_and_neither_change_nor_follow_the_users_settings(tmp_path: Path) -> None:
    setups, report = build_setups(), build_report(WEIGHTS)
    plain = plots.save(plots.draw_layers(report), tmp_path / "plain.svg")
    users = {"font.size": 23.0, "axes.grid": True, "svg.fonttype": "none", "axes.titlecolor": "red"}
    with matplotlib.rc_context(users):
        before = dict(matplotlib.rcParams)
        figures = {plots.draw_ratios(setups): setups, plots.draw_heatmaps([setups]): setups,
                   plots.draw_layers(report): report}  # fmt: skip
        for figure, measured in figures.items():
            assert figure.get_supxlabel().replace("\n", " ").endswith(plots.caption(measured))
        other = plots.save(figure, tmp_path / "other.svg")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in other]


def test_save_writes_a_200_dpi_png_and_an_svg_and_nothing_else(tmp_path: Path) -> None:
    figure = Figure(figsize=(2, 1))
    png, svg = plots.save(figure, tmp_path / "map.v2")
    assert sorted(tmp_path.iterdir()) == sorted([png, svg]) == [tmp_path / "map.v2.png", tmp_path / "map.v2.svg"]
    height, width = matplotlib.image.imread(png).shape[:2]
    assert (width, height) == pytest.approx(200 * figure.get_size_inches(), abs=1)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        (path,) = plots.save(figure, tmp_path / f"alone{ending}")
        assert path.name == f"alone{ending}"
        assert path.read_bytes().startswith(start)
    assert len([*tmp_path.iterdir()]) == 4
    with pytest.raises(HessdiagError, match="missing"):
        plots.save(figure, tmp_path / "missing" / "figure")


def test_a_figure_that_fails_to_draw_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plots.save(Figure(figsize=(2, 1)), tmp_path / "figure")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    figure = Figure(figsize=(1, 1))
    real = figure.savefig

    def fail_on_svg(*args, format, **options):
        if format == "svg":
            raise KeyboardInterrupt
        real(*args, format=format, **options)

    monkeypatch.setattr(figure, "savefig", fail_on_svg)
    with pytest.raises(KeyboardInterrupt):
        plots.save(figure, tmp_path / "figure")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_labels_keep_what_tells_blocks_apart_and_a_quantity_has_one_colour() -> None:
    names = [f"encoder.stages.{i}.layers.{j}.convolution.weight" for i in range(4) for j in range(12)]
    labels = short_labels(names)
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) <= 28
    names = ["fc1.weight", "fc1.bias", "weight", "rnn.weight_ih_l0"]
    assert short_labels(names) == ["fc1", "fc1.bias", "weight", "rnn.weight_ih_l0"]
    figure = plots.draw_layers(build_report(WEIGHTS))
    entries = [line for line in figure.axes[-1].get_legend().get_lines() if line.get_linestyle() != "None"]
    drawn = [*figure.axes[-1].lines, *entries]
    for quantity in QUANTITIES:
        assert {line.get_color() for line in drawn if line.get_marker() == quantity.marker} == {quantity.colour}
        assert any(text.startswith(quantity.label) for text in texts_of(figure))


def test_names_are_drawn_as_they_are_spelled(tmp_path: Path) -> None:
    names = ["a$\\frac{x$.weight", "b\x07.weight"]
    report = build_report([build_block(name) for name in names], model="$m$", init="$\\sqrt{$")
    setups = build_setups(names=names, count=3)
    for figure in (plots.draw_layers(report), plots.draw_heatmap(report), plots.draw_ratios(setups)):
        plots.save(figure, tmp_path / "figure.svg")
        ElementTree.parse(tmp_path / "figure.svg")
        assert {"a$\\frac{x$", "b\ufffd"} <= {text.split("\n")[0] for text in texts_of(figure)}
        named = [text for text in figure.findobj(Text) if "$" in text.get_text() and "H_{ij}" not in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)
