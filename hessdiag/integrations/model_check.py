"""The check that tests make: `assert_healthy`, with a failure that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, Any

from hessdiag.arguments import check_options
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.errors import HessdiagError
from hessdiag.integrations.findings_baseline import is_known, to_line
from hessdiag.results.comparison import compare_reports
from hessdiag.results.findings import GRAVITY, Finding, Severity, is_as_grave
from hessdiag.results.report import Report
from hessdiag.results.verdict import judge_findings
from hessdiag.suggestions import did_you_mean, few

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessdiag.data.batch import Inputs
    from hessdiag.derivatives.losses import LossFunction

WIDTH = 100
MAX_BLOCKS = 6  # that a failure names
UPDATE = "--hessdiag-update-baseline"
NOT_JUDGED = {"progress": False}


@dataclass
class ModelCheck:
    """The fixture `hessdiag` of a test. All names of the package are its attributes too.

    Attributes:
        test: name of the test, for the baseline.
        baseline: reports of earlier checks by their names; None where no baseline was asked for.
        source: what the baseline is called in messages.
        updating: findings are recorded in place of failing.
        recorded: lines for the baseline, by the names of the checks.
        calls: how many checks the test has made; the second one is called `TEST (2)`.
    """

    test: str
    baseline: Mapping[str, Report] | None = field(default=None, repr=False)  # pytest shows the fixture where it fails
    source: str = ""
    updating: bool = field(default=False, repr=False)
    recorded: dict[str, str] = field(default_factory=dict, repr=False)
    calls: int = field(default=0, repr=False)

    def assert_healthy(
        self,
        model: nn.Module,
        inputs: Inputs | Iterable[Any],
        targets: Tensor | None = None,
        *,
        loss: str | LossFunction = "random-quadratic",
        fail_on: Severity = "warning",
        ignore: Iterable[str] = (),
        **options: Any,
    ) -> Report:
        """Measure a model, and fail where it has findings that are neither ignored nor in the baseline.

        Args:
            model, inputs, targets, loss: as `hessdiag.diagnose` takes them.
            fail_on: `"fault"`, or `"warning"` for warnings as well.
            ignore: rules that do not count, such as `["HD112"]`.
            options: of `hessdiag.diagnose`.

        Returns:
            The report, for assertions of your own.

        Raises:
            AssertionError: the model is not healthy; the message has the findings.
            HessdiagError: an argument cannot be used, or the model cannot be measured.
        """
        __tracebackhide__ = True
        try:
            check_options(options, diagnose, fixed=["targets", "loss", "signals"])
            ignored = _check_choices(fail_on, ignore)
            report = diagnose(model, inputs, targets, loss=loss, **NOT_JUDGED | options)
            message = self._judge(report, fail_on, ignored)
        except HessdiagError as error:
            raise HessdiagError(str(error)) from None  # without the frames in which it was found out
        if message:
            raise AssertionError(message)
        return report

    def _judge(self, report: Report, fail_on: Severity, ignored: Container[str]) -> str:
        """Say what is wrong; nothing where all is well, or where it is recorded."""
        self.calls += 1
        name = self.test if self.calls == 1 else f"{self.test} ({self.calls})"
        if report.signals is None:
            return f"{report.model}: {report.verdict.sentence}"
        if self.updating:
            self.recorded[name] = to_line(report)
            return ""
        before = self.baseline.get(name) if self.baseline is not None else None
        counted: list[Finding] = []
        excused: list[str] = []
        for finding in (*report.findings, *self._changes(before, report, name)):
            if finding.rule in ignored:
                excused.append(f"{finding.rule} (ignored)")
            elif not is_as_grave(finding, fail_on):
                excused.append(f"{finding.rule} (a {finding.severity})")
            elif before is not None and is_known(finding, before):
                excused.append(f"{finding.rule} (in {self.source})")
            else:
                counted.append(finding)
        missing = f"{self.source} has no entry {name}" if self.baseline is not None and before is None else ""
        return _tell(report, counted, excused, missing) if counted else ""

    def _changes(self, before: Report | None, report: Report, name: str) -> tuple[Finding, ...]:
        """List what changed since the baseline."""
        if before is None:
            return ()
        try:
            return compare_reports(before, report).findings
        except HessdiagError as error:
            raise HessdiagError(f"{name} in {self.source}: {error}; or record it anew: pytest {UPDATE}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("hessdiag"), name)


def _check_choices(fail_on: str, ignore: Iterable[str]) -> frozenset[str]:
    """Refuse another gravity, and rules that do not exist; return those to ignore."""
    if fail_on not in ("fault", "warning"):
        raise HessdiagError(f"fail_on {fail_on!r}: pass 'fault' or 'warning'")
    ignored = frozenset([ignore] if isinstance(ignore, str) else ignore)
    for rule in sorted(ignored - CATALOGUE.keys()):
        hint = did_you_mean(rule, CATALOGUE, otherwise="hessdiag explain lists all")
        raise HessdiagError(f"ignore: there is no rule {rule!r}: {hint}")
    return ignored


def _tell(report: Report, counted: Sequence[Finding], excused: Sequence[str], missing: str) -> str:
    """Tell the findings as a reader of a failed test wants them."""
    ranked = sorted(counted, key=lambda finding: GRAVITY.index(finding.severity))
    lines = [f"{report.model}: {judge_findings(ranked)[1]}"]
    for finding in ranked:
        lines += [
            f"{finding.severity} {finding.rule}: {CATALOGUE[finding.rule].title}",
            _line("where", few(finding.blocks, MAX_BLOCKS) or "the model"),
            _line("seen", finding.message),
            _line("do", finding.advice),
            _line("why", f"hessdiag explain {finding.rule}"),
        ]
    if excused:
        lines.append(f"not counted: {', '.join(excused)}")
    if missing:
        lines.append(f"{missing}; pytest {UPDATE} records what is known")
    return "\n".join(lines)


def _line(title: str, text: str) -> str:
    first = f"  {title}:".ljust(9)
    return fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)
