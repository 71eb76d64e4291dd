"""Web pages of results: one file each, which loads and runs nothing.

The templates escape every text that is put into them, so that names of a model are text wherever they stand.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results import init_check
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
LAYERS = (
    "One row for each layer. A balanced network has each colour in a vertical line. Blue (γ, theory) near green (σ²,"
    " measurement): the theory predicts the curvature."
)


@dataclass(frozen=True)
class Cell:
    """One cell: what it shows, and on hovering all digits of its number."""

    text: str
    exact: str = ""

    @classmethod
    def of(cls, text: str, value: float) -> Cell:
        """Put the exact number behind a text."""
        return cls(text, "undefined" if math.isnan(value) else repr(float(value)))


@dataclass(frozen=True)
class Picture:
    """A figure inside a page: as an image it can neither run anything nor reach the rest of the page."""

    title: str
    reading: str
    address: str
    width: int

    @classmethod
    def of(cls, figure: Figure, title: str, reading: str) -> Picture:
        """Write the figure as the address of an image that holds it."""
        svg = base64.b64encode(to_svg(figure)).decode()
        return cls(title, reading, f"data:image/svg+xml;base64,{svg}", round(96 * float(figure.get_figwidth())))


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, then a table whose first columns are texts, then figures."""

    title: str
    paragraphs: Sequence[str] = ()
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    texts: int = 1
    figures: Sequence[Picture] = ()


def to_html(result: Report | InitCheck, path: str | os.PathLike[str] | None = None) -> str:
    """Return one HTML page that needs nothing else; also write it to `path` when one is given."""
    text = check_page(result) if isinstance(result, InitCheck) else report_page(result)
    if path is not None:
        write_text(path, text)
    return text


def report_page(report: Report) -> str:
    """Write the page of a report: verdict, findings, table, figures, definitions and settings."""
    figures = []
    if report.weights:
        figures.append(Picture.of(plots.draw_heatmap(report), "Map of the size of every pair of weights", MAP))
    if report.blocks:
        figures.append(Picture.of(plots.draw_layers(report), "γ, σ² and ν of every layer", LAYERS))
    thresholds = (
        f"Largest over smallest σ²: below {short(BALANCED)} is balanced, above {short(UNBALANCED)} unbalanced."
        " Learning rates that suit the layers differ by its root."
    )
    skipped = Section("Not measured", ["Every parameter is a row of the table."])
    if report.skipped:
        skipped = Section("Not measured", (), ("parameter", "reason"), _texts(report.skipped), texts=2)
    settings = [(f.name.replace("_", " "), getattr(report, f.name)) for f in fields(report) if f.name not in ELSEWHERE]
    sections = [
        Section(
            "Layers",
            [*report.header(), *report.summary(), thresholds],
            tuple(COLUMNS),
            [_block_row(block) for block in report.blocks],
        ),
        Section("Figures", figures=figures),
        Section("Definitions", [SYMBOLS], ("", "formula", "meaning"), _texts(DEFINITIONS), texts=3),
        skipped,
        Section("Settings and versions", (), ("name", "value"), _texts([*settings, *report.versions.items()]), texts=2),
    ]
    return _environment().get_template("page.html.jinja").render(
        title=f"{report.model}: {report.verdict.level}",
        heading=f"Layers of {report.model}, initialisation {report.init}",
        tone=report.verdict.level,
        verdict=report.verdict.sentence,
        notes=[report.verdict.balance.sentence, *report.verdict.balance.notes],
        findings=report.findings,
        rules=CATALOGUE,
        rows={block.name: number for number, block in enumerate(report.blocks)},
        sections=sections,
    )  # fmt: skip


def check_page(check: InitCheck) -> str:
    """Write the page of an initialisation check: verdict, ranking, figures, layers and settings."""
    setups = check.checked.setups
    figure = plots.draw_init_check(check, relative=True)
    reading = "Each map is over its own level, the geometric mean of its diagonal. Dashed lines: uneven and unbalanced."
    figures = [Picture.of(figure, "Maps and spreads of each initialisation", reading)]
    sections = [
        Section(
            "Ranking",
            [f"{len(setups)} set-ups of each, with the same seeds; the most balanced first.", *check.conventions],
            init_check.RANKING,
            [
                [Cell(scheme.init + (" (asked about)" if scheme is check.checked else "")),
                 *map(Cell.of, init_check.cells(scheme), init_check.scheme_values(scheme))]
                for scheme in check.schemes
            ],
        ),
    ]  # fmt: skip
    layers = _numbers(setups.names, init_check.layer_values(check))
    sections.append(Section(f"Layers under {check.init}", (), init_check.LAYERS, layers))
    settings = [
        (key, getattr(setups, key)) for key in ("loss", "matrix", "per", "method", "batch_size", "data", "seed")
    ]
    return _environment().get_template("page.html.jinja").render(
        title=f"{check.init} on {check.model}: {check.level}",
        heading=f"Initialisation {check.init} on {check.model}",
        tone=check.level,
        verdict=check.verdict,
        notes=(),
        findings=(),
        rules={},
        rows={},
        sections=[
            *sections,
            Section("Figures", figures=figures),
            Section("Settings and versions", (), ("name", "value"), _texts([*settings, *setups.versions.items()]), 2),
        ],
    )  # fmt: skip


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


def _block_row(block: BlockReport) -> list[Cell]:
    row = []
    for key, text in zip(COLUMNS.values(), cells(block), strict=True):
        value = getattr(block, key)
        row.append(Cell.of(text, value) if isinstance(value, float) else Cell(text))
    return row


def _texts(rows: Iterable[Sequence[object]]) -> list[list[Cell]]:
    return [[Cell(str(text)) for text in row] for row in rows]


def _numbers(names: Sequence[str], values: Sequence[Sequence[float]]) -> list[list[Cell]]:
    rows = zip(names, values, strict=True)
    return [[Cell(name), *(Cell.of(short(value), value) for value in row)] for name, row in rows]
