"""The command line: results on stdout, messages on stderr, one line and status 2 for what cannot be."""

import math
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import hessdiag
from hessdiag.cli import figures
from hessdiag.diagnosis import random_setups
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups, Study
from hessdiag.view import plots
from tests.reports import build_block, build_report

COMMANDS = ("describe", "diagnose", "explain", "compare", "lr", "predict", "prescribe", "check-init", "reproduce")


@pytest.mark.parametrize("command", ["", *(f"{command} " for command in COMMANDS)])
def test_help_is_on_stdout(command: str, run) -> None:
    status, out, err = run(f"{command}--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: hessdiag {command}".rstrip())
    assert run(f"{command}-h").out == out


def test_nothing_asked_for_prints_the_help_versions_agree_and_options_are_few(run) -> None:
    assert run("") == run("--help")
    assert run("--version") == (0, f"hessdiag {hessdiag.__version__}\n", "")
    assert hessdiag.__version__ == metadata.version("hessdiag")
    out = run("reproduce --help").out
    assert "  ratios    Figure 1: " in out
    assert "  heatmaps  Figure 2: " in out
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", run("diagnose --help").out, re.MULTILINE)
    asked = "init weights arg input-size batch-size data loss matrix per method rtol eval device dtype seed json csv"
    asked += " html plots max-spread fit fail-on verbose output blocks quick"
    assert set(options) == {f"--{name}" for name in asked.split()} | {"--help"}


def test_help_rules_reports_and_pages_need_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from hessdiag.__main__ import main
for command in ([], {", ".join(f'["{command}"]' for command in COMMANDS)}):
    assert main([*command, "--help"]) == 0
heavy = {{"torch", "numpy", "pandas", "matplotlib", "seaborn"}} & set(sys.modules)
assert not heavy, heavy
assert main(["explain", "HD104"]) == 0
from hessdiag.results.report import Report
report = Report.from_json(sys.argv[1])
print(report, report.to_csv())
assert not {{"torch", "matplotlib"}} & set(sys.modules)
from hessdiag.view.html import to_html
to_html(report)
assert "torch" not in sys.modules
"""
    build_report(build_block(name="a.weight")).to_json(tmp_path / "r.json")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.json")], check=True, capture_output=True)


def test_options_and_the_seed_reach_the_measurement(run) -> None:
    line = "diagnose mlp:6-5-3 --init geometric --batch-size 7 --loss mse --matrix hessian --per batch"
    line += " --method probe --rtol 0.3 --device cpu --dtype float64 --seed 11 --json -"
    report = Report.from_json(run(line).out)
    assert (report.init, report.batch_size, report.loss, report.matrix) == ("geometric", 7, "mse", "hessian")
    assert (report.per, report.method, report.rtol) == ("batch", "probe", 0.3)
    assert (report.device, report.dtype, report.seed) == ("cpu", "float64", 11)
    line = "diagnose mlp:6-5-3 --seed 4 --batch-size 8 --init fan-in --device cpu --json -"
    first, again, other = run(line), run(line), run(line.replace("4", "5", 1))
    assert first.out == again.out != other.out
    setups = hessdiag.measure_setups("mlp:6-5-3", setups=1, batch_size=8, init="fan-in", seed=4)
    assert setups.columns["gamma"][0].tolist() == [block.gamma for block in Report.from_json(first.out).weights]
    lenet = run("diagnose lenet --arg in_channels=1 --input-size 1,31,32 --batch-size 2 --json -")
    report = Report.from_json(lenet.out)
    assert (report.blocks[0].shape, report.blocks[0].sites_in) == ((6, 1, 5, 5), 31 * 32)
    assert Report.from_json(run("diagnose mlp:12-3 --input-size 3x2x2 --json -").out).blocks[0].shape == (3, 12)


def test_files_hold_what_the_table_shows_and_plots_and_a_page_go_with_json_on_stdout(run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old")
    status, out, err = run("diagnose mlp:6-5-3 --json a.json --csv a.csv")
    assert (status, err) == (0, "wrote a.json\nwrote a.csv\n")
    assert out.startswith("No problem found")
    assert "\nmlp:6-5-3, init as built: Gauss-Newton per example, as it trains\n" in out
    assert re.findall("^(fc.) ", out, re.MULTILINE) == ["fc2", "fc1"]
    report = Report.from_json(tmp_path / "a.json")
    assert out == repr(report) + "\n"
    assert (tmp_path / "a.csv").read_text() == report.to_csv()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json"]
    status, out, err = run("diagnose mlp:6-5-3 --json - --plots figures/new --html page.html")
    assert status == 0
    assert Report.from_json(out).blocks
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("data:image/svg+xml") == 2
    assert_figures(tmp_path / "figures" / "new", "heatmap", "layers")
    drawn = {f"drew figures/new/{name}.{kind}" for name in ("heatmap", "layers") for kind in ("png", "svg")}
    assert set(err.splitlines()) == drawn | {"wrote page.html"}


def assert_figures(folder: Path, *names: str) -> None:
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert "<svg" in (folder / f"{name}.svg").read_text()


def test_a_quick_report_has_a_page_and_figures_without_a_map(run, tmp_path: Path) -> None:
    assert run("diagnose mlp:6-5-3 --quick -q --html r.html --plots .").status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "layers.png", "layers.svg"}
    assert "Map of the size" not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_max_spread_is_a_gate_that_the_spread_itself_passes(run, tmp_path: Path, monkeypatch) -> None:
    spread = Report.from_json(run("diagnose mlp:6-5-3 --json -").out).spread["avg_sq_singular_value"]
    passed = run(f"diagnose mlp:6-5-3 --max-spread {spread!r}")
    assert (passed.status, passed.err) == (0, "")
    status, out, err = run(f"diagnose mlp:6-5-3 --max-spread {math.nextafter(spread, 0)!r}")
    assert (status, err.count("\n")) == (1, 1)
    assert "\nfc1 " in out
    status, _, err = run("diagnose mlp:6-5-3 --max-spread 1 --json a.json")
    assert status == 1
    assert "over --max-spread 1\n" in err
    assert Report.from_json(tmp_path / "a.json").blocks
    assert run("diagnose mlp:6-5-3 --quiet --max-spread 1").err.startswith("hessdiag: spread of σ² is ")
    monkeypatch.setattr("hessdiag.results.report.spread", lambda values: float("nan"))
    assert run("diagnose mlp:6-5-3 --max-spread 1e9").status == 1  # an undefined one


def test_describe_lists_blocks_and_measures_nothing(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.diagnosis.measure.sum_moments", lambda *_, **__: pytest.fail("measured"))
    status, out, err = run("describe lenet --batch-size 16")
    assert (status, err) == (0, "")
    assert re.search(r"\nconv1.weight +6×3×5×5 +450 +3 +6 +196 +weight +Conv2d\n", out)
    assert "5 blocks, 61,770 parameters, 10 outputs, batch 16" in out
    assert "method exact" in out
    assert "method probe (Hessian products in weight space)" in run("describe lenet --matrix hessian").out
    assert "6×1×5×5" in run("describe lenet --arg in_channels=1").out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none(run) -> None:
    told = "device cuda: torch finds no CUDA device here; use device='cpu' (--device cpu)"
    assert run("diagnose mlp:4-3 --device cuda").err == f"hessdiag: {told}\n"


def test_a_mistake_of_ours_is_not_hidden(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.diagnosis.diagnose.diagnose_prepared", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("diagnose mlp:4-3")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ratios", "heatmaps"):
        monkeypatch.setitem(figures.QUICK, name, (2, 4))


@pytest.mark.usefixtures("few")
def test_reproduce_ratios(run, tmp_path: Path) -> None:
    status, out, err = run("reproduce ratios --quick --out new/folder --seed 3 --resume trials")
    assert status == 0
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["ratios.json", "ratios.png", "ratios.svg"]
    assert_figures(folder, "ratios")
    told = ["wrote new/folder/ratios.json", "drew new/folder/ratios.png", "drew new/folder/ratios.svg"]
    assert err.splitlines() == told
    setups = Setups.from_json(folder / "ratios.json")
    assert (len(setups), setups.batch_size, setups.seed) == (2, 4, 3)
    assert (setups.model, setups.init, setups.matrix, setups.per) == ("lenet", "geometric", "ggn", "example")
    assert "γ/σ² over 2 trials" in out
    medians = [float(line.split()[1]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(medians, np.median(setups.columns["ratio"], axis=0), atol=0.005)


@pytest.mark.usefixtures("few")
def test_reproduce_heatmaps(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(figures.QUICK, "heatmaps", (1, 1))
    measure = random_setups.measure_setups  # of a smaller network
    monkeypatch.setattr(random_setups, "measure_setups", lambda _, **options: measure("mlp:5-4-3", **options))
    drawn = []
    monkeypatch.setattr(plots, "draw_heatmaps", lambda p, **how: drawn.append((len(p), how)) or Figure((1, 1)))
    status, out, err = run("reproduce heatmaps --quick --out .")
    assert (status, drawn) == (0, [(8, {"relative": True}), (8, {})])
    kinds = [f"heatmaps{view}.{kind}" for view in ("", "-relative") for kind in ("png", "svg")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["heatmaps.json", *kinds])
    assert err.splitlines() == ["wrote heatmaps.json", *(f"drew {kind}" for kind in kinds)]
    panels = Study.from_json(tmp_path / "heatmaps.json").panels
    inits = ["fan-in", "fan-out", "arithmetic", "geometric"]
    assert [(panel.matrix, panel.init) for panel in panels] == [(m, i) for m in ("hessian", "ggn") for i in inits]
    assert all(len(panel) == 1 and panel.seed == 0 for panel in panels)
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[p.matrix, p.init] for p in panels]
    spreads = [float(line.split()[2]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(spreads, [panel.spread for panel in panels], rtol=0.005)
