"""A plugin of pytest: the fixture `hessdiag`, and a file of findings that are known.

pytest imports this in every run; torch and the rest of the package are imported when a test asks for the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.integrations.model_check import ModelCheck
    from hessdiag.results.report import Report

BASELINE = pytest.StashKey["Mapping[str, Report]"]()
RECORDED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options, and their entry in the configuration file."""
    group = parser.getgroup("hessdiag", "curvature of networks (fixture: hessdiag)")
    group.addoption("--hessdiag-baseline", metavar="FILE", default="", help="findings in this file do not fail a test")
    group.addoption(
        "--hessdiag-update-baseline", action="store_true", help="write what is found to that file, and fail no test"
    )
    parser.addini("hessdiag_baseline", "file of known findings, see --hessdiag-baseline", type="string", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare for an update of the baseline, where that is asked for: nothing else happens in other runs."""
    if not config.getoption("hessdiag_update_baseline"):
        return
    path = baseline_path(config)
    if path is None:
        raise pytest.UsageError("--hessdiag-update-baseline: name the file too, --hessdiag-baseline FILE")
    if not path.parent.is_dir():
        raise pytest.UsageError(f"--hessdiag-baseline {path}: there is no folder {path.parent}")
    config.pluginmanager.register(BaselineWriter(path, is_worker=hasattr(config, "workerinput")), "hessdiag-baseline")


def baseline_path(config: pytest.Config) -> Path | None:
    """The file that was asked for: on the command line from where pytest was started, or in the configuration file."""
    if option := config.getoption("hessdiag_baseline"):
        return Path(config.invocation_params.dir, option)
    entry = config.getini("hessdiag_baseline")
    return Path(config.rootpath, entry) if entry else None


@pytest.fixture
def hessdiag(request: pytest.FixtureRequest) -> ModelCheck:
    """Check models: `hessdiag.assert_healthy(model, inputs, targets, loss=...)`; and all names of the package."""
    from hessdiag.integrations.model_check import ModelCheck

    config = request.config
    path = baseline_path(config)
    updating = config.getoption("hessdiag_update_baseline")
    baseline = _read_once(config, path) if path is not None and not updating else None
    return ModelCheck(
        test=request.node.nodeid,
        baseline=baseline,
        source=os.path.relpath(path, config.invocation_params.dir) if path is not None else "",
        updating=updating,
        recorded=request.node.stash.setdefault(RECORDED, {}),
    )


def _read_once(config: pytest.Config, path: Path) -> Mapping[str, Report]:
    from hessdiag.integrations.findings_baseline import read_baseline

    if BASELINE in config.stash:
        return config.stash[BASELINE]
    try:
        return config.stash.setdefault(BASELINE, read_baseline(path))
    except HessdiagError as error:
        refusal = f"{error}; pytest --hessdiag-update-baseline writes it"
    pytest.fail(refusal, pytrace=False)  # out here, so that it is told without what led to it


class BaselineWriter:
    """Collects what tests record, also on the workers of pytest-xdist, and writes it at the end."""

    def __init__(self, path: Path, *, is_worker: bool) -> None:
        self.path = path
        self.is_worker = is_worker
        self.lines: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach it to the report of the test, which pytest-xdist carries to the process that writes."""
        report = yield
        recorded = item.stash.get(RECORDED, {})
        vars(report)["hessdiag_recorded"] = dict(recorded)  # pytest writes and reads what else a report has
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Collect it."""
        self.lines |= getattr(report, "hessdiag_recorded", {})

    def pytest_sessionfinish(self) -> None:
        """Write the file, where there is something to write."""
        if self.lines and not self.is_worker:
            from hessdiag.integrations.findings_baseline import update_baseline

            update_baseline(self.path, self.lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written."""
        what = f"{len(self.lines)} check{'s' if len(self.lines) != 1 else ''}"
        said = f"wrote {what} to {self.path}" if self.lines else "no test made a check, the baseline is as it was"
        terminalreporter.write_line(f"hessdiag: {said}")
