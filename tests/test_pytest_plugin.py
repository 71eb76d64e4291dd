"""The plugin in real runs of pytest: what fails, what it says, and runs without it."""

from importlib.metadata import entry_points

import pytest
from _pytest.pytester import SysModulesSnapshot

from hessdiag.pytest_plugin import _describe_failure
from tests.pages import read
from tests.reports import build_report

pytest_plugins = ["pytester"]

PLUGIN = "hessdiag.pytest_plugin"
INSTALLED = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
LOADED = [] if INSTALLED else ["-p", PLUGIN]  # by name where the package is only on the path

TESTS = """
import torch
from torch import nn

def check(hessdiag, fill, **options):
    "30 ReLUs, dead ones where their bias is very negative."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
    nn.init.constant_(model[0].bias, fill)
    return hessdiag.assert_healthy(model, torch.randn(16, 4), torch.randint(3, (16,)), loss="cross-entropy", **options)

"""


@pytest.fixture
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a run `pytester` forgets the modules of that run, not those of libraries, which load but once."""
    held = lambda preserve=None: SysModulesSnapshot(lambda name: not name.startswith("test_"))  # noqa: E731
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot", held)


@pytest.fixture
def run(_own_modules: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of the run that this test is in

    def run_tests(body: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_models=TESTS + body)
        return pytester.runpytest_inprocess(*LOADED, "-p", "no:cacheprovider", *options)

    return run_tests


def test_a_healthy_model_passes_and_its_report_is_returned(run) -> None:  # type: ignore[no-untyped-def]
    result = run("""
def test_healthy(hessdiag):
    report = check(hessdiag, 0.0)
    assert report.verdict.level == "no-problem"
    assert report.spread["gamma"] > 0
    assert hessdiag.HessdiagError is not None and hessdiag.diagnose  # the package is not hidden by the fixture
""")
    result.assert_outcomes(passed=1)


def test_a_failure_says_what_is_wrong_where_and_what_to_do(run) -> None:  # type: ignore[no-untyped-def]
    result = run("def test_sunk(hessdiag):\n    check(hessdiag, -10.0)\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        ">*check(hessdiag, -10.0)", "E*AssertionError: Sequential: 1 fault, 1 warning: look first at 0.bias (HD402).",
        "E*HD402 fault: 0.bias, 0", "E*found: The ReLU after 0 fires for 0 % of its inputs *",
        "E*do: Start the bias at zero: `nn.init.zeros_(model.get_parameter('0.bias'))`.",
        "E*why: hessdiag explain HD402", "E*HD205 warning: *",
        "FAILED test_models.py::test_sunk - AssertionError: Sequential: 1 fault*",
    ])  # fmt: skip
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")  # the traceback ends in the test


def test_what_counts_is_chosen(run) -> None:  # type: ignore[no-untyped-def]
    result = run("""
def test_warning_alone(hessdiag):
    check(hessdiag, 5.0, fail_on="fault")

def test_one_of_two(hessdiag):
    check(hessdiag, -10.0, ignore=["HD402"], fail_on="warning")

def test_both(hessdiag):
    check(hessdiag, -10.0, ignore=("HD402", "HD205"))

def test_fault_alone(hessdiag):
    check(hessdiag, -10.0, fail_on="fault")
""")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["E*AssertionError: Sequential: 1 warning: look first at *(HD205)."])
    result.stdout.fnmatch_lines(["E*AssertionError: Sequential: 1 fault: look first at *(HD402)."])


def test_a_mistake_is_told_in_a_line(run) -> None:  # type: ignore[no-untyped-def]
    told = {
        "ignore=['HD1O2']": "ignore: there is no rule 'HD1O2': did you mean HD1",
        "fail_on='note'": "fail_on 'note' is not known: use one of fault, warning",
    }
    result = run("\n".join(f"def test_{i}(hessdiag): check(hessdiag, 0.0, {each})" for i, each in enumerate(told)))
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"E*HessdiagError: {message}*" for message in told.values()])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_the_package_declares_it_and_a_model_whose_signals_cannot_be_measured_is_not_healthy() -> None:
    assert f'[project.entry-points.pytest11]\nhessdiag = "{PLUGIN}"\n' in read("pyproject.toml")
    report = build_report(signals=None, signals_missing="no signals today")
    assert "no signals today" in _describe_failure(report, "warning", frozenset())


def test_a_run_that_does_not_use_it_imports_next_to_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_plain=f"""
import sys

def test_plain(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("hessdiag") or "{PLUGIN}" in sys.modules
    assert not {{"torch", "numpy", "scipy", "pandas", "rich", "typer"}} & set(sys.modules)
"""
    )
    pytester.runpytest_subprocess(*LOADED, "-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.skipif(not INSTALLED, reason="pytest finds plugins of installed packages alone")
def test_it_can_be_left_out(run) -> None:  # type: ignore[no-untyped-def]
    result = run("def test_it(hessdiag): pass\n", "-p", "no:hessdiag")
    result.stdout.fnmatch_lines(["E*fixture 'hessdiag' not found"])
