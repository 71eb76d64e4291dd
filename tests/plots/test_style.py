import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import matplotlib.image
import pytest
from matplotlib.figure import Figure

from hessdiag import HessdiagError, plots
from hessdiag.plots.labels import number, short_labels


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
        (9.96, "10"),
        (99.6, "100"),
        (999.4, "999"),
        (999.6, "1.0e3"),
        (0.00999, "0.010"),
        (0.00994, "9.9e-3"),
        (1, "1.0"),
    ],
)
def test_numbers_round_across_powers_of_ten(value, text):
    assert number(value) == text


@pytest.mark.parametrize("value", [3.2, 26.0, 473.0, 1.4e-3, 2.0e7, 0.85])
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
