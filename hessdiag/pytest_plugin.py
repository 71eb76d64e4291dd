"""Plugin of pytest: the fixture `hessdiag` with `assert_healthy`, whose failure says what is wrong, where, what to do.

pytest imports this in every run; torch and the rest of the package are imported when a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from torch import nn

    from hessdiag.data.batch import Inputs
    from hessdiag.derivatives.losses import LossFunction
    from hessdiag.results.findings import Severity
    from hessdiag.results.report import Report

LISTED = "hessdiag explain lists all"
MOST_NAMES = 6


@pytest.fixture
def hessdiag() -> ModelCheck:
    """Check models: `hessdiag.assert_healthy(model, inputs, targets, loss=...)`; and all names of the package."""
    return ModelCheck()


class ModelCheck:
    """The fixture `hessdiag` of a test. All names of the package are its attributes too."""

    def assert_healthy(
        self, model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
        loss: str | LossFunction | None = None, fail_on: Severity = "warning", ignore: Iterable[str] = (),
        **options: Any,
    ) -> Report:  # fmt: skip
        """Measure a model, and fail where it has findings; return the report.

        Args:
            model, inputs, targets, loss: as `hessdiag.diagnose` takes them.
            fail_on: `"fault"`, or `"warning"` for warnings as well.
            ignore: rules that do not count, such as `["HD112"]`.
            options: of `hessdiag.diagnose`.

        Raises:
            AssertionError: the model has findings that count, which the message describes.
            HessdiagError: an argument cannot be used, or the model cannot be measured.
        """
        __tracebackhide__ = True
        from hessdiag.diagnosis.diagnose import diagnose

        try:
            ignored = _check_choices(fail_on, ignore)
            report = diagnose(model, inputs, targets, loss=loss, **{"progress": False} | options)
        except HessdiagError as error:
            raise HessdiagError(str(error)) from None  # without the frames of the measurement
        if message := _describe_failure(report, fail_on, ignored):
            raise AssertionError(message)
        return report

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("hessdiag"), name)


def _check_choices(fail_on: str, ignore: Iterable[str]) -> frozenset[str]:
    """Refuse another severity, and rules that do not exist; return those to ignore."""
    from hessdiag.arguments import check_choice, did_you_mean
    from hessdiag.diagnosis.rules import CATALOGUE

    check_choice("fail_on", fail_on, ("fault", "warning"))
    ignored = frozenset([ignore] if isinstance(ignore, str) else ignore)
    for rule in sorted(ignored - CATALOGUE.keys()):
        raise HessdiagError(f"ignore: there is no rule {rule!r}: {did_you_mean(rule, CATALOGUE, otherwise=LISTED)}")
    return ignored


def _describe_failure(report: Report, fail_on: Severity, ignored: frozenset[str]) -> str:
    """Describe the findings that count, most severe first; empty where there are none."""
    from hessdiag.results.findings import is_as_grave, judge, told
    from hessdiag.results.text_table import plain_text

    if report.signals is None:
        return f"{report.model}: {report.verdict.sentence}"
    if not (counted := [f for f in report.findings if f.rule not in ignored and is_as_grave(f, fail_on)]):
        return ""
    lines = [line for finding in counted for line in told(finding, MOST_NAMES)]
    return plain_text([f"{report.model}: {judge(counted)[1]}", *lines])
