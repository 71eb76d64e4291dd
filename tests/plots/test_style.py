import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import matplotlib.image
import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from hessdiag import HessdiagError, plots
from hessdiag.plots.frame import frame, to_svg
from hessdiag.plots.labels import number, short_labels
from hessdiag.plots.style import DARK, LIGHT, QUANTITIES, theme, themed
from tests.plots.test_init_comparison import build_check


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


def test_every_figure_carries_its_caption(make_setups, make_block, make_report, texts_of):
    for figure, caption in draw_all(make_setups, make_block, make_report):
        assert caption in [text.replace("\n", " ") for text in texts_of(figure)]


def test_a_setting_that_is_longer_than_a_line_is_broken_between_words():
    figure = Figure(figsize=(3, 1))
    words = " ".join(f"word{number}" for number in range(30))
    frame(figure, title="t", note=f"short one · {words} · short two")
    lines = next(text.get_text() for text in figure.texts if text.get_gid() == "caption").split("\n")
    assert " ".join(lines) == f"short one · {words} · short two"
    assert all(line.split(" ")[0] in ("short", *words.split(), "·") for line in lines)


def test_drawing_and_saving_leave_the_users_settings_alone(make_setups, make_block, make_report, tmp_path):
    with matplotlib.rc_context({"font.size": 23.0, "axes.grid": True, "svg.fonttype": "none"}):
        before = dict(matplotlib.rcParams)
        for figure, _ in draw_all(make_setups, make_block, make_report):
            plots.save(figure, tmp_path / "figure")
        assert dict(matplotlib.rcParams) == before


def test_the_users_settings_do_not_change_a_figure(make_setups, tmp_path):
    plain, _ = plots.save(plots.draw_ratios(make_setups()), tmp_path / "plain")
    with matplotlib.rc_context({"font.size": 23.0, "lines.linewidth": 9.0, "axes.titlecolor": "red"}):
        other, _ = plots.save(plots.draw_ratios(make_setups()), tmp_path / "other")
    assert plain.read_bytes() == other.read_bytes()


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


def test_the_same_figure_gives_the_same_bytes(make_setups, tmp_path):
    for name in ("one", "two"):
        plots.save(plots.draw_heatmaps([make_setups()]), tmp_path / name)
    for suffix in ("png", "svg"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_the_last_digits_of_the_layout_do_not_change_the_bytes(make_setups):
    """The solver's differ with the addresses of objects."""
    drawn = []
    for shift in (0.0, 1e-12):
        figure = plots.draw_heatmaps([make_setups()])
        engine = figure.get_layout_engine()
        lay_out = engine.execute

        def shifted(target, lay_out=lay_out, shift=shift):
            lay_out(target)
            for axes in target.axes:
                left, *rest = axes.get_position(original=True).bounds
                axes._set_position([left + shift, *rest])

        engine.execute = shifted
        drawn.append(to_svg(figure))
        assert figure.get_layout_engine() is engine
    assert drawn[0] == drawn[1]


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
    assert all("…" in label for label in labels)


def test_labels_that_would_clash_stay_whole():
    names = [f"{'x' * 20}{middle}{'y' * 20}.weight" for middle in "ab"]
    assert short_labels(names) == [name.removesuffix(".weight") for name in names]


def test_short_names_stay_as_they_are():
    names = ["fc1.weight", "fc1.bias", "weight", "rnn.weight_ih_l0"]
    assert short_labels(names) == ["fc1", "fc1.bias", "weight", "rnn.weight_ih_l0"]


def test_plots_need_no_torch_and_no_display():
    code = "import sys, hessdiag.plots; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0


def colours_of(figure: Figure, marker: str) -> set[str]:
    entries = [line for line in figure.legends[0].get_lines() if line.get_linestyle() != "None"]  # not those of kinds
    return {line.get_color() for line in (*figure.axes[-1].lines, *entries) if line.get_marker() == marker}


def test_a_quantity_looks_alike_in_every_figure(make_block, make_report, texts_of):
    report = make_report([make_block("a.weight"), make_block("b.weight")])
    for figure in (plots.draw_layers(report), plots.draw_init_check(build_check(2))):
        for quantity in QUANTITIES:
            assert colours_of(figure, quantity.marker) == {quantity.colour}
            assert any(text.startswith(quantity.label) for text in texts_of(figure))


def test_a_dark_figure_differs_in_its_colours_alone(make_block, make_report, texts_of):
    report = make_report([make_block("a.weight"), make_block("a.bias"), make_block("b.weight", nu=float("nan"))])
    light = plots.draw_layers(report)
    with themed(DARK):
        dark = plots.draw_layers(report)
    assert texts_of(dark) == texts_of(light)
    assert dark.get_facecolor() == dark.axes[0].get_facecolor() == to_rgba(DARK.page)
    light_colours, dark_colours = ({to_hex(t.get_color()) for t in f.findobj(Text)} for f in (light, dark))
    assert light_colours == {LIGHT.ink, LIGHT.muted, LIGHT.warning}
    assert dark_colours == {DARK.ink, DARK.muted, DARK.warning}


def test_a_theme_ends_with_its_block():
    def fail_in_the_dark():
        with themed(DARK):
            assert theme() is DARK
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_dark()
    assert theme() is LIGHT


@pytest.mark.parametrize("colour", [*DARK.lines, DARK.ink, DARK.muted, DARK.warning])
def test_lines_and_texts_stand_out_on_a_dark_page(colour):
    def luminance(value):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgba(value)[:3]]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(colour) + 0.05) / (luminance(DARK.page) + 0.05) > 4.5  # WCAG 2, of text


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
        assert {"a$\\frac{x$", "b\ufffd"} <= set(texts_of(figure))
        named = [text for text in figure.findobj(Text) if "$" in text.get_text() and "H_{ij}" not in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)


def test_ticks_of_logarithmic_axes_are_plain_text(make_block, make_report, texts_of):
    wide = make_report([make_block("a.weight"), make_block("b.weight", nu=1e-9)])
    assert {"1e-9", "0.1"} & set(texts_of(plots.draw_layers(wide)))
    assert not any("$" in text for text in texts_of(plots.draw_layers(wide)))
