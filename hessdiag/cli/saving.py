"""What commands do with a result: save it in the asked-for forms, and print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hessdiag.cli.colour import print_coloured
from hessdiag.cli.options import Detail
from hessdiag.cli.progress_bar import say
from hessdiag.results.files import make_folder, write_text
from hessdiag.results.rendering import render

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


def show(result: Any, *, json: str, detail: Detail = Detail.TABLE) -> None:
    """Print the result as a table, or as JSON where that is asked for with `-`; in colour where it is a terminal."""
    if json == "-":
        print(result.to_json(), end="")
    else:
        print_coloured(render(detail.value, result))
