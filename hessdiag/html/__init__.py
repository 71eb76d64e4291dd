"""A result as one HTML file that needs nothing else: verdict, table, figures, definitions and the data itself."""

from __future__ import annotations

import os

from hessdiag.html import init_page, report_page
from hessdiag.results.files import write_text
from hessdiag.results.init_check import InitCheck
from hessdiag.results.report import Report


def to_html(result: Report | InitCheck, path: str | os.PathLike[str] | None = None) -> str:
    """Return one HTML page that needs nothing else; also write it to `path` when one is given.

    The same result gives the same bytes.
    """
    text = init_page.render(result) if isinstance(result, InitCheck) else report_page.render(result)
    if path is not None:
        write_text(path, text)
    return text
