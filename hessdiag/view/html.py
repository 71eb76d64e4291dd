"""The web page of a report: one file, which loads and runs nothing.

The template escapes every text that is put into it, so that names of a model are text wherever they stand.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.files import write_text
from hessdiag.results.findings import BALANCED, UNBALANCED
from hessdiag.results.init_check import InitCheck
from hessdiag.results.numbers import short
from hessdiag.results.report import COLUMNS, BlockReport, Report, cells
from hessdiag.view import plots
from hessdiag.view.plots.style import printable, to_svg

ELSEWHERE = ("blocks", "heatmap", "skipped", "versions", "findings", "signals", "signals_missing")
DEFINITIONS = (
    ("ς", "n ρ² E[Δx²] E[x²]", "activation scaling at the layer's input; most operations of a ReLU network keep it"),
    ("γ", "n k² ρ'² E[x²]² E[Δx'²] / E[x'²]", "what σ² and ν of a weight should be, from activations and gradients"),
    ("γ of a bias", "ρ'² E[Δx'²] / E[x'²]", "a bias is added at the output of its layer"),
    ("γ of a scalar u", "ς / E[u²]²", "a learnable multiplier"),
    ("γ curv.", "γ with S u for Δy", "S: Hessian of the loss in the outputs y, u ~ N(0, E[y²])"),
    ("ν", "E[ΔW²] / E[W²]", "squared relative size of one step of SGD at learning rate 1"),
    ("σ²", "‖G‖² / P = E[(G r)²], r ~ N(0, 1)", "average squared singular value: the measured curvature, squared"),
    ("γ/σ²", "γ / σ²", "theory over measurement; its size depends on the loss"),
    ("relative", "γ/σ² over its geometric mean", "near 1 in every weight: the theory ranks the layers rightly"),
)  # fmt: skip
SYMBOLS = (
    "A layer reads x and writes x'; Δx is the gradient of the loss in x. E[·] is the mean over elements and examples."
    " n is the fan-in in channels, k² the number of entries of the kernel, ρ² and ρ'² the numbers of positions at input"
    " and output, P the number of entries of the weight W, G its diagonal block of the curvature matrix."
)
MAP = (
    "One square for each pair of weights, coloured by its size per entry; on the diagonal this is σ². One colour"
    " throughout means that all layers weigh the same."
)
THRESHOLDS = (
    f"Largest over smallest σ²: below {short(BALANCED)} is balanced, above {short(UNBALANCED)} unbalanced."
    " Learning rates that suit the layers differ by its root."
)
LAYERS = (
    "One row for each layer. A balanced network has each colour in a vertical line. Blue (γ, theory) near green (σ²,"
    " measurement): the theory predicts the curvature."
)


def to_html(report: Report | InitCheck, path: str | os.PathLike[str] | None = None) -> str:
    """Return one HTML page that needs nothing else; also write it to `path` when one is given.

    That of a report has the verdict, the findings, a table of the blocks, figures, definitions and settings; that of a
    check of an initialisation its text and its figure.
    """
    check_kind("report", report, (Report, InitCheck), "pass the Report of hessdiag.diagnose")
    text = _page_of_check(report) if isinstance(report, InitCheck) else _page(report)
    if path is not None:
        write_text(path, text)
    return text


def _page_of_check(check: InitCheck) -> str:
    address, width = _picture(plots.draw_init_check(check))
    values = {"title": f"Initialisation {check.init}", "text": check.text(), "address": address, "width": width}
    return _environment().get_template("check.html.jinja").render(values)


def _page(report: Report) -> str:
    figures = {}
    if report.weights:
        figures["Map of the size of every pair of weights"] = (*_picture(plots.draw_heatmap(report)), MAP)
    if report.blocks:
        figures["γ, σ² and ν of every layer"] = (*_picture(plots.draw_layers(report)), LAYERS)
    settings = [(f.name.replace("_", " "), getattr(report, f.name)) for f in fields(report) if f.name not in ELSEWHERE]
    return _environment().get_template("page.html.jinja").render(
        report=report,
        places={block.name: number for number, block in enumerate(report.blocks)},
        rules=CATALOGUE,
        thresholds=THRESHOLDS,
        columns=tuple(COLUMNS),
        cells=_cells,
        figures=figures,
        symbols=SYMBOLS,
        definitions=DEFINITIONS,
        settings=[(name, str(value)) for name, value in (*settings, *report.versions.items())],
    )  # fmt: skip


def _picture(figure: Figure) -> tuple[str, int]:
    """Address and width of an image: as one, a figure can neither run anything nor reach the rest of the page."""
    svg = base64.b64encode(to_svg(figure)).decode()
    return f"data:image/svg+xml;base64,{svg}", round(96 * float(figure.get_figwidth()))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("hessdiag.view", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters["breakable"] = _breakable
    made.filters["short"] = short
    return made


def _breakable(name: str) -> Markup:
    """Escape a dotted name such that it may be broken over lines after its dots.

    >>> _breakable("a<b.weight")
    Markup('a&lt;b.<wbr>weight')
    """
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._])", printable(name)))


def _cells(block: BlockReport) -> Iterator[tuple[str, str]]:
    """Texts of a row after the name, with all digits of those that are measured numbers."""
    for key, text in list(zip(COLUMNS.values(), cells(block), strict=True))[1:]:
        value = getattr(block, key)
        exact = "undefined" if isinstance(value, float) and math.isnan(value) else repr(value)
        yield text, exact if isinstance(value, float) else ""
