"""Gates: what makes a command exit with 1, for scripts and continuous integration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hessdiag.cli.progress_bar import say
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.results.findings import Finding, Severity

FailOn = Annotated[
    str, typer.Option(metavar="fault|warning", help="exit with 1 if there is a finding as grave as that, or graver")
]
GATED = ("fault", "warning")


def check_fail_on(fail_on: str) -> None:
    """Refuse another word than the severities that a gate can be set at; empty is no gate."""
    if fail_on and fail_on not in GATED:
        raise HessdiagError(f"--fail-on {fail_on!r}: pass {' or '.join(GATED)}")


def gate(findings: Iterable[Finding], fail_on: str) -> None:
    """Exit with 1 where a finding is as grave as `fail_on` or graver; nothing happens where that is empty."""
    if not fail_on:
        return
    from hessdiag.results.findings import is_as_grave

    for finding in findings:
        if is_as_grave(finding, cast("Severity", fail_on)):
            where = f" at {finding.blocks[0]}" if finding.blocks else ""
            say(f"hessdiag: {finding.severity} {finding.rule}{where}, for --fail-on {fail_on}")
            raise typer.Exit(1)


def check_max_spread(max_spread: float | None) -> None:
    """Refuse a `--max-spread` that every spread is over; None is no gate."""
    if max_spread is not None and not max_spread >= 1:
        raise HessdiagError(f"--max-spread {max_spread:g}: pass a number of at least 1, such as 10")


def gate_spread(found: float, max_spread: float | None, *, of: str = "") -> None:
    """Exit with 1 where the spread of σ² is over `max_spread`, or undefined."""
    if max_spread is not None and not found <= max_spread:
        say(f"hessdiag: spread of σ²{of} is {found:.3g}, over --max-spread {max_spread:g}")
        raise typer.Exit(1)
