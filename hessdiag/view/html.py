"""The web page of a report: one file, which loads and runs nothing.

The template escapes every text that is put into it, so that names of a model are text wherever they stand.
"""

import base64
import os
import re
from dataclasses import fields

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.numbers import short
from hessdiag.results.records import saved
from hessdiag.results.report import Report, block_table, layer_table
from hessdiag.results.setups import InitCheck
from hessdiag.results.text_table import printable
from hessdiag.view import plots

ELSEWHERE = ("blocks", "heatmap", "skipped", "versions", "findings", "signals", "signals_missing")


def to_html(report: Report | InitCheck, path: str | os.PathLike[str] | None = None) -> str:
    """Return one HTML page that needs nothing else; also write it to `path` when one is given.

    That of a report has the verdict, the findings, a table of the blocks, figures, definitions and settings; that of a
    check of an initialisation its text and its maps.
    """
    check_kind("report", report, (Report, InitCheck), "pass the Report of hessdiag.diagnose")
    if isinstance(report, Report):
        return saved(_page(report), path)
    template = _environment().get_template("check.html.jinja")
    return saved(template.render(check=report, picture=_picture(plots.draw_init_check(report))), path)


def _page(report: Report) -> str:
    settings = [(f.name.replace("_", " "), getattr(report, f.name)) for f in fields(report) if f.name not in ELSEWHERE]
    return _environment().get_template("page.html.jinja").render(
        report=report, places={block.name: number for number, block in enumerate(report.blocks)}, rules=CATALOGUE,
        glance=layer_table(report.weights) if report.heatmap.names else None, symbols=block_table(report),
        map=_picture(plots.draw_heatmap(report)) if report.heatmap.names else None,
        layers=_picture(plots.draw_layers(report)) if report.blocks else None,
        settings=[(name, str(value)) for name, value in (*settings, *report.versions.items())],
    )  # fmt: skip


def _picture(figure: Figure) -> tuple[str, int]:
    """Address and width of an image: as one, a figure can neither run anything nor reach the rest of the page."""
    svg = base64.b64encode(plots.rendered(figure, "svg")).decode()
    return f"data:image/svg+xml;base64,{svg}", round(96 * float(figure.get_figwidth()))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("hessdiag.view", "templates"), undefined=StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True, finalize=lambda value: printable(value) if type(value) is str else value,
    )  # fmt: skip
    made.filters |= {"breakable": _breakable, "short": short}
    return made


def _breakable(name: str) -> Markup:
    """Escape a dotted name such that it may be broken over lines after its dots.

    >>> _breakable("a<b.weight")
    Markup('a&lt;b.<wbr>weight')
    """
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._])", printable(name)))
