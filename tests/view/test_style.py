import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import matplotlib.image
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from hessdiag import HessdiagError
from hessdiag.view import plots
from hessdiag.view.plots.style import QUANTITIES, frame, number, short_labels
from tests.view.test_init_check import build_check


def test_caption_has_every_setting(make_setups):
    assert plots.caption(make_setups(seed=3)) == (
        "lenet · geometric initialisation · random-quadratic loss · Gauss-Newton, per example · batch size 1024"
        " · 100 set-ups · exact method · seeds 3–102"
    )


def test_caption_of_a_report_is_of_one_set_up(make_block, make_report):
    report = make_report([make_block("a.weight")], matrix="hessian", per="batch", method="probe", seed=5)
    assert plots.caption(report).endswith("Hessian, per batch · batch size 64 · 1 set-up · probe method · seed 5")


def test_caption_lists_what_differs(make_setups):
    text = plots.caption(
        make_setups(init="fan-in", matrix="hessian", method="probe"), make_setups(), make_setups(init="arithmetic")
    )
    assert "fan-in, geometric and arithmetic initialisation" in text
    assert "Hessian and Gauss-Newton, per example" in text
    assert "probe and exact method" in text
    assert text.count("random-quadratic") == 1


def draw_all(make_setups, make_block, make_report) -> list[tuple[Figure, str]]:
    setups, report = make_setups(), make_report([make_block("a.weight"), make_block("b.weight")])
    return [
        (plots.draw_ratios(setups), plots.caption(setups)),
        (plots.draw_heatmaps([setups]), plots.caption(setups)),
        (plots.draw_heatmap(report), plots.caption(report)),
        (plots.draw_layers(report), plots.caption(report)),
    ]


def test_a_setting_that_is_longer_than_a_line_is_broken_between_words():
    figure = Figure(figsize=(3, 1))
    words = " ".join(f"word{number}" for number in range(30))
    frame(figure, title="t", note=f"short one · {words} · short two")
    lines = figure.get_supxlabel().split("\n")
    assert " ".join(lines) == f"short one · {words} · short two"
    assert all(line.split(" ")[0] in ("short", *words.split(), "·") for line in lines)


def test_figures_carry_their_caption_and_leave_the_users_settings_alone(make_setups, make_block, make_report, tmp_path):
    with matplotlib.rc_context({"font.size": 23.0, "axes.grid": True, "svg.fonttype": "none"}):
        before = dict(matplotlib.rcParams)
        for figure, caption in draw_all(make_setups, make_block, make_report):
            assert figure.get_supxlabel().replace("\n", " ").endswith(caption)
            plots.save(figure, tmp_path / "figure")
        assert dict(matplotlib.rcParams) == before


def test_the_same_figure_gives_the_same_bytes_whatever_the_users_settings(make_setups, tmp_path):
    plain = plots.save(plots.draw_ratios(make_setups(count=2)), tmp_path / "plain")
    with matplotlib.rc_context({"font.size": 23.0, "lines.linewidth": 9.0, "axes.titlecolor": "red"}):
        other = plots.save(plots.draw_ratios(make_setups(count=2)), tmp_path / "other")
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in other]


@pytest.mark.parametrize("name", ["lay.png", "lay.svg"])
def test_a_name_with_an_ending_is_that_file_alone(name: str, make_setups, tmp_path):
    (path,) = plots.save(plots.draw_ratios(make_setups(count=2)), tmp_path / name)
    assert [*tmp_path.iterdir()] == [path] == [tmp_path / name]
    assert path.read_bytes().startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


def test_save_writes_a_200_dpi_png_and_an_svg_and_nothing_else(make_setups, tmp_path):
    figure = plots.draw_heatmaps([make_setups()])
    png, svg = plots.save(figure, tmp_path / "map.v2")
    assert sorted(tmp_path.iterdir()) == sorted([png, svg]) == [tmp_path / "map.v2.png", tmp_path / "map.v2.svg"]
    height, width = matplotlib.image.imread(png).shape[:2]
    assert (width, height) == pytest.approx(200 * figure.get_size_inches(), abs=1)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


def test_a_missing_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(HessdiagError, match="missing"):
        plots.save(Figure(), tmp_path / "missing" / "figure")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_fails_to_draw_leaves_the_old_files(make_setups, tmp_path, monkeypatch):
    plots.save(plots.draw_ratios(make_setups(count=2)), tmp_path / "figure")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    figure = plots.draw_ratios(make_setups(count=3))
    real = figure.savefig

    def fail_on_svg(*args, format, **options):
        if format == "svg":
            raise KeyboardInterrupt
        real(*args, format=format, **options)

    monkeypatch.setattr(figure, "savefig", fail_on_svg)
    with pytest.raises(KeyboardInterrupt):
        plots.save(figure, tmp_path / "figure")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),
        (99.96, "100"),
        (999.4, "999"),
        (999.6, "1.00e3"),
        (0.009999, "0.0100"),
        (0.00994, "9.94e-3"),
        (1, "1.00"),
    ],
)
def test_numbers_round_across_powers_of_ten(value, text):
    assert number(value) == text


@pytest.mark.parametrize("value", [3.21, 26.3, 473.0, 1.42e-3, 2.05e7, 0.855])
def test_numbers_can_be_read_back(value):
    assert float(number(value)) == value


def test_labels_are_short_and_keep_what_tells_blocks_apart():
    names = [f"encoder.stages.{i}.layers.{j}.convolution.weight" for i in range(4) for j in range(12)]
    labels = short_labels(names)
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) <= 28


def test_labels_that_would_clash_stay_whole():
    names = [f"{'x' * 20}{middle}{'y' * 20}.weight" for middle in "ab"]
    assert short_labels(names) == [name.removesuffix(".weight") for name in names]


def test_short_names_stay_as_they_are():
    names = ["fc1.weight", "fc1.bias", "weight", "rnn.weight_ih_l0"]
    assert short_labels(names) == ["fc1", "fc1.bias", "weight", "rnn.weight_ih_l0"]


def test_plots_need_no_torch_and_no_display():
    code = "import sys, hessdiag.view.plots; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0


def colours_of(figure: Figure, marker: str) -> set[str]:
    entries = [line for line in figure.axes[-1].get_legend().get_lines() if line.get_linestyle() != "None"]
    return {line.get_color() for line in (*figure.axes[-1].lines, *entries) if line.get_marker() == marker}


def test_a_quantity_looks_alike_in_every_figure(make_block, make_report, texts_of):
    report = make_report([make_block("a.weight"), make_block("b.weight")])
    for figure in (plots.draw_layers(report), plots.draw_init_check(build_check(2))):
        for quantity in QUANTITIES:
            assert colours_of(figure, quantity.marker) == {quantity.colour}
            assert any(text.startswith(quantity.label) for text in texts_of(figure))


def test_names_are_drawn_as_they_are_spelled(make_block, make_report, make_setups, texts_of, tmp_path):
    names = ["a$\\frac{x$.weight", "b\x07.weight"]
    report = make_report([make_block(name) for name in names], model="$m$", init="$\\sqrt{$")
    for figure in (
        plots.draw_layers(report),
        plots.draw_heatmap(report),
        plots.draw_ratios(make_setups(names=names, count=3)),
    ):
        plots.save(figure, tmp_path / "figure")
        ElementTree.parse(tmp_path / "figure.svg")
        assert {"a$\\frac{x$", "b\ufffd"} <= {text.split("\n")[0] for text in texts_of(figure)}
        named = [text for text in figure.findobj(Text) if "$" in text.get_text() and "H_{ij}" not in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)


def test_ticks_of_logarithmic_axes_are_plain_text(make_block, make_report, texts_of):
    wide = make_report([make_block("a.weight"), make_block("b.weight", nu=1e-9)])
    assert {"1e-09", "0.1"} & set(texts_of(plots.draw_layers(wide)))
    assert not any("$" in text for text in texts_of(plots.draw_layers(wide)))
