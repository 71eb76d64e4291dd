"""What commands do with a result: save it in the asked-for forms, and print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hessdiag.cli.colour import print_coloured
from hessdiag.cli.options import Detail
from hessdiag.cli.progress_bar import say
from hessdiag.results.files import make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(result: Any, *, json: str = "", csv: str = "", html: str = "") -> None:
    """Write the files that were asked for; before anything is printed, so that a failure leaves nothing on stdout.

    Args:
        result: with `to_json` and `to_csv` for those that are asked for.
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
        from hessdiag.html import to_html

        to_html(result, html)
        say(f"wrote {html}")


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
        print_coloured(result.text(detail.value))
