"""What commands do with a result: save it in the asked-for forms, and print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hessdiag.cli.progress_bar import say
from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hessdiag.results.findings import Finding, Severity
    from hessdiag.results.report import Report


def save(result: Any, *, json: str = "", csv: str = "", html: str = "") -> None:
    """Write the files that were asked for; before anything is printed, so that a failure leaves nothing on stdout.

    Args:
        result: with `to_json`, `to_csv` and `to_html` for those that are asked for.
        json: a file; `-` is for `show`.
        csv, html: files.
    """
    if json not in ("", "-"):
        result.to_json(json)
        say(f"wrote {json}")
    if csv:
        result.to_csv(csv)
        say(f"wrote {csv}")
    if html:
        result.to_html(html)
        say(f"wrote {html}")


def save_findings(
    report: Report,
    changes: Sequence[Finding] | None,
    *,
    sarif: str = "",
    junit: str = "",
    model: str,
    fail_on: str = "",
) -> None:
    """Write the findings for other programs, where that was asked for.

    Args:
        report: of `hessdiag.diagnose`.
        changes: findings of a comparison with an earlier report; None where there was none.
        sarif, junit: files.
        model: as typed, for the place where it is defined.
        fail_on: how grave a finding fails its test of the JUnit file; warnings and faults by default.
    """
    if sarif:
        from hessdiag.integrations.definition import find_definition
        from hessdiag.integrations.sarif import render as to_sarif

        write_text(sarif, to_sarif(report, changes or (), definition=find_definition(model)))
        say(f"wrote {sarif}")
    if junit:
        from hessdiag.integrations.junit import render as to_junit

        write_text(junit, to_junit(report, changes, fail_on=cast("Severity", fail_on or "warning")))
        say(f"wrote {junit}")


def draw(figures: Mapping[str, Figure], folder: str) -> None:
    """Save figures under their names, as png and svg."""
    from hessdiag import plots

    target = make_folder(folder)
    for name, figure in figures.items():
        for path in plots.save(figure, target / name):
            say(f"drew {path}")


def make_folder(folder: str | Path) -> Path:
    """Make a folder where it is missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HessdiagError(f"cannot make the folder {str(folder)!r} ({error.strerror})") from error
    return Path(folder)


def show(result: Any, *, json: str) -> None:
    """Print the table, or the JSON where that is asked for with `-`."""
    print(result.to_json() if json == "-" else repr(result), end="" if json == "-" else "\n")
