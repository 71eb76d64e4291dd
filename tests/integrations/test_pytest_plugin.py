"""The plugin in real runs of pytest: what fails, what it says, the baseline, several workers, and runs without it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from _pytest.pytester import SysModulesSnapshot

from hessdiag.integrations.findings_baseline import is_known, read_baseline, to_line, update_baseline
from hessdiag.results.findings import Finding
from tests.integrations.models import write_models
from tests.integrations.plugin import INSTALLED, LOADED, PLUGIN
from tests.pages import ROOT
from tests.reports import build_block, build_report

pytest_plugins = ["pytester"]

TESTS = """
import pytest, torch
from nets import network

def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 4, generator=generator), torch.randint(3, (16,), generator=generator)

def check(hessdiag, fill, **options):
    return hessdiag.assert_healthy(network(fill)[0], *data(), loss="cross-entropy", **options)
"""


class OwnModules(SysModulesSnapshot):
    """What `pytester` forgets after a run: the modules of that run, not those of libraries, which load but once."""

    def __init__(self, preserve: object = None) -> None:
        super().__init__(preserve=lambda name: name not in ("nets", "test_models", "test_plain"))


@pytest.fixture
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot", OwnModules)


@pytest.fixture
def run(_own_modules: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Write tests and run pytest on them."""
    write_models(pytester.path)
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of the run that this test is in

    def run_tests(body: str, *options: str, **how: bool) -> pytest.RunResult:
        if body:
            pytester.makepyfile(test_models=TESTS + body)
        in_process = how.get("in_process", True)
        runner = pytester.runpytest_inprocess if in_process else pytester.runpytest_subprocess
        return runner(*LOADED, "-p", "no:cacheprovider", *options)

    return run_tests


def test_the_package_declares_the_plugin() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.entry-points.pytest11]\nhessdiag = "{PLUGIN}"\n' in text


def test_a_healthy_model_passes_and_its_report_is_returned(run) -> None:  # type: ignore[no-untyped-def]
    result = run("""
def test_healthy(hessdiag):
    report = check(hessdiag, 0.0)
    assert report.verdict.level == "healthy"
    assert report.spread["gamma"] > 0
    assert hessdiag.HessdiagError is not None and hessdiag.diagnose  # the package is not hidden by the fixture
""")
    result.assert_outcomes(passed=1)


def test_a_failure_says_what_is_wrong_where_and_what_to_do(run) -> None:  # type: ignore[no-untyped-def]
    result = run("def test_sunk(hessdiag):\n    check(hessdiag, -10.0)\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*check(hessdiag, -10.0)",
            "E*AssertionError: Sequential: Faulty: 1 fault, 1 warning; look first at 0.bias and 1 more (HD402).",
            "E*fault HD402: Dead units",
            "E*where: 0.bias, 0.weight",
            "E*seen:  100 % of the ReLUs behind 0 never fire on this batch (above 80 % is unusual); the mean of",
            "E*the bias is -10.0.",
            "E*do:    Start the bias at zero: `nn.init.zeros_(model.get_parameter('0.bias'))`.",
            "E*why:   hessdiag explain HD402",
            "E*warning HD205: A bias drowns what its layer computes",
            "FAILED test_models.py::test_sunk - AssertionError: Sequential: Faulty*",
        ]
    )
    result.stdout.no_fnmatch_line("*model_check.py*")  # the traceback ends in the test


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
    result.stdout.fnmatch_lines(["E*Suspicious: 1 warning;*(HD205).", "E*not counted: HD402 (ignored)"])
    result.stdout.fnmatch_lines(["E*Faulty: 1 fault;*(HD402).", "E*not counted: HD205 (a warning)"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ignore=['HD1O2']", "ignore: there is no rule 'HD1O2': did you mean HD1"),
        ("fail_on='note'", "fail_on 'note': pass 'fault' or 'warning'"),
        ("rtoll=0.1", "unknown option 'rtoll': did you mean rtol?"),
        ("signals=False", "unknown option 'signals'"),
    ],
    ids=["ignore", "fail_on", "option", "signals"],
)
def test_a_mistake_is_told_in_a_line(run, options: str, message: str) -> None:  # type: ignore[no-untyped-def]
    result = run(f"def test_it(hessdiag):\n    check(hessdiag, 0.0, {options})\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E*HessdiagError: {message}*"])
    result.stdout.no_fnmatch_line("*model_check.py*")


def test_a_model_whose_signals_cannot_be_seen_is_not_healthy(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no signals today")

    monkeypatch.setattr("hessdiag.diagnosis.look.network_signals", broken)
    for update in ([], ["--hessdiag-baseline", "b.json", "--hessdiag-update-baseline"]):
        result = run("def test_it(hessdiag):\n    check(hessdiag, 0.0)\n", *update)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["E*Undecided: *no signals today*"])


PARAMETRISED = """
@pytest.mark.parametrize("fill", [0.0, -10.0])
def test_known(hessdiag, fill):
    check(hessdiag, fill)

def test_twice(hessdiag):
    check(hessdiag, 5.0)
    check(hessdiag, FILL)
""".replace("FILL", "0.0")


def test_findings_of_the_baseline_do_not_fail_and_new_ones_do(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    update = ["--hessdiag-baseline", "known.json", "--hessdiag-update-baseline"]
    result = run(PARAMETRISED, *update)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["hessdiag: wrote 4 checks to *known.json"])
    names = [
        f"test_models.py::{name}" for name in ("test_known[-10.0]", "test_known[0.0]", "test_twice", "test_twice (2)")
    ]
    assert list(json.loads(Path("known.json").read_text(encoding="utf-8"))["checks"]) == names

    run("", "--hessdiag-baseline", "known.json").assert_outcomes(passed=3)
    run("").assert_outcomes(passed=1, failed=2)  # without the file all of them count
    changed = run(PARAMETRISED.replace("0.0)", "5.0)"), "--hessdiag-baseline", "known.json")
    changed.assert_outcomes(passed=2, failed=1)  # the second check of test_twice was healthy
    changed.stdout.fnmatch_lines(["E*warning HD205: *", "E*warning HD601: Weights of a block differ *", "E*0.bias*"])

    more = run(
        PARAMETRISED + "def test_new(hessdiag):\n    check(hessdiag, 5.0)\n", "--hessdiag-baseline", "known.json"
    )
    more.assert_outcomes(passed=3, failed=1)
    more.stdout.fnmatch_lines(
        ["E*known.json has no entry test_models.py::test_new; pytest --hessdiag-update-baseline*"]
    )
    before = Path("known.json").read_text(encoding="utf-8")
    run("", *update, "-k", "test_new").assert_outcomes(passed=1, deselected=3)
    after = Path("known.json").read_text(encoding="utf-8")
    assert [line.strip(",") for line in after.splitlines() if '"test_models.py::test_new"' not in line] == [
        line.strip(",") for line in before.splitlines()
    ]  # one line more, the others as they were
    run("", "--hessdiag-baseline", "known.json").assert_outcomes(passed=4)


def test_a_baseline_measured_otherwise_is_refused(run) -> None:  # type: ignore[no-untyped-def]
    body = "def test_it(hessdiag):\n    check(hessdiag, 0.0)\n"
    run(body, "--hessdiag-baseline", "b.json", "--hessdiag-update-baseline").assert_outcomes(passed=1)
    result = run(body.replace("0.0)", "0.0, matrix='hessian')"), "--hessdiag-baseline", "b.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*test_it in b.json: the two reports differ in matrix, 'ggn' before and 'hessian' after*"]
    )


def test_the_baseline_may_stand_in_the_configuration(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    pytester.makeini("[pytest]\nhessdiag_baseline = known.json\n")
    body = "def test_sunk(hessdiag):\n    check(hessdiag, -10.0)\n"
    missing = run(body)
    missing.assert_outcomes(errors=1)
    told = (
        "baseline '*known.json': cannot read '*known.json' (No such file*; pytest --hessdiag-update-baseline writes it"
    )
    missing.stdout.fnmatch_lines([told])
    run(body, "--hessdiag-update-baseline").assert_outcomes(passed=1)
    run(body).assert_outcomes(passed=1)
    Path("known.json").write_text('{"schema": "hessdiag.baseline/1", "checks": {"a": {"blocks": 3}}}', encoding="utf-8")
    damaged = run(body)
    damaged.assert_outcomes(errors=1)
    damaged.stdout.fnmatch_lines(["baseline '*known.json': the hessdiag.report/1 record is damaged ('skipped')*"])


def test_an_update_needs_a_file_that_can_be_written(run) -> None:  # type: ignore[no-untyped-def]
    result = run("def test_it(hessdiag): pass\n", "--hessdiag-update-baseline")
    result.stderr.fnmatch_lines(["ERROR: --hessdiag-update-baseline: name the file too, --hessdiag-baseline FILE"])
    result = run("", "--hessdiag-update-baseline", "--hessdiag-baseline", "no/known.json")
    result.stderr.fnmatch_lines(["ERROR: --hessdiag-baseline *no/known.json: there is no folder *no"])


def test_workers_of_xdist_share_the_baseline(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    pytester.makepyfile(
        test_plain=f"""
from {PLUGIN} import RECORDED

def test_on_the_other_worker(request, worker_id):
    assert worker_id != "master"
    request.node.stash[RECORDED] = {{"other": '{{"blocks": []}}'}}  # as the fixture does, without importing torch
"""
    )
    options = ["-n", "2", "--dist", "loadfile", "--hessdiag-baseline", "known.json", "--hessdiag-update-baseline"]
    result = run("def test_sunk(hessdiag):\n    check(hessdiag, -10.0)\n", *options, in_process=False)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["hessdiag: wrote 2 checks to *known.json"])
    checks = json.loads(Path("known.json").read_text(encoding="utf-8"))["checks"]
    assert list(checks) == ["other", "test_models.py::test_sunk"]
    assert [finding["rule"] for finding in checks["test_models.py::test_sunk"]["findings"]] == ["HD402", "HD205"]


def test_a_run_that_does_not_use_it_imports_next_to_nothing(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    pytester.makepyfile(
        test_plain="""
import sys

def test_plain(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("hessdiag") or "PLUGIN" in sys.modules
    assert not {"torch", "numpy", "scipy", "pandas", "rich", "typer"} & set(sys.modules)
""".replace("PLUGIN", PLUGIN)
    )
    run("", "--hessdiag-baseline", "missing.json", in_process=False).assert_outcomes(passed=1)


@pytest.mark.skipif(not INSTALLED, reason="pytest finds plugins of installed packages alone")
def test_it_can_be_left_out(run) -> None:  # type: ignore[no-untyped-def]
    result = run("def test_it(hessdiag): pass\n", "-p", "no:hessdiag")
    result.stdout.fnmatch_lines(["E*fixture 'hessdiag' not found"])


def finding(severity: str = "warning", *blocks: str, rule: str = "HD205") -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        blocks=blocks or ("a", "b"),
        message="m",
        advice="a",
        value=1.0,
        threshold=0.5,  # type: ignore[arg-type]
    )


def test_a_finding_is_known_by_its_rule_its_blocks_and_its_gravity() -> None:
    before = build_report(findings=(finding(), finding("warning", "c")))
    for known in (finding(), finding("note"), finding("warning", "b"), finding("warning", "b", "a", "c")):
        assert is_known(known, before)
    for new in (finding("fault"), finding("warning", "a", "d"), finding(rule="HD402")):
        assert not is_known(new, before)
    assert not is_known(finding(), build_report())


def test_what_a_baseline_keeps_is_read_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    report = build_report(
        build_block(nu=float("nan"), stderr=0.1), build_block(name="é", gamma=1 / 3), findings=(finding(),)
    )
    update_baseline(path, {'t::a["x"]': to_line(report)})
    update_baseline(path, {"t::b": to_line(build_report())})
    read = read_baseline(path)
    assert list(read) == ['t::a["x"]', "t::b"]
    assert read['t::a["x"]'].blocks == report.blocks
    assert read['t::a["x"]'].findings == report.findings
    assert sys.getsizeof(path.read_text(encoding="utf-8")) < 10_000
