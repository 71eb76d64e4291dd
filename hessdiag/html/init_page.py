"""The page of an initialisation check: verdict, ranking, figures, layers, and the data inside."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from hessdiag.html.figures import InlineFigure, inline_figure, spelled
from hessdiag.html.text import breakable, embedded, printable
from hessdiag.plots.init_comparison import draw_init_check, draw_widths
from hessdiag.results.init_check import InitCheck
from hessdiag.results.numbers import short
from hessdiag.tables.init_check_table import LAYERS, RANKING, cells, layer_rows, sweep_rows

MEANINGS = {
    "σ² spread": "largest over smallest average squared singular value among the weight blocks, with 95 % interval",
    "γ spread": "the same of the theory's scaling factor",
    "ν spread": "the same of the weight-gradient ratio",
    "γ/σ²": "theory over measurement, median",
    "E[y²]": "second moment of the outputs",
    "Var[y]": "variance of the outputs; ! outside 0.01 to 0.1",
    "forward": "E[x²] after the last layer over that after the first",
    "backward": "E[Δx²] after the first layer over that after the last",
    "γ/γᵇ in": "γ of the first layer's weight over γ of its bias",
}


def render(check: InitCheck) -> str:
    """The whole page as text; the same check gives the same text."""
    setups = check.checked.setups
    settings = {key: getattr(setups, key) for key in ("loss", "matrix", "per", "method", "batch_size", "data", "seed")}
    return _template().render(
        check=check,
        level=check.level,
        setups=len(setups),
        settings={key.replace("_", " "): str(value) for key, value in settings.items()} | dict(setups.versions),
        ranking=RANKING,
        meanings=MEANINGS,
        rows=[(scheme.init, scheme is check.checked, cells(scheme)) for scheme in check.schemes],
        layer_titles=LAYERS,
        layers=layer_rows(check),
        widths=None if check.widths is None else sweep_rows(check.widths),
        width_titles=() if check.widths is None else [f"{width:g}×" for width in check.widths.widths],
        figures=_figures(check),
        json=embedded(check.to_json()),
    )


def _figures(check: InitCheck) -> list[InlineFigure]:
    drawn = spelled(check)
    described = "The tables of this page hold the numbers."
    figures = [
        inline_figure("maps", "Block maps, and spreads of each initialisation", described, draw_init_check(drawn))
    ]
    if drawn.widths is not None:
        title = "σ² of every layer by width"
        figures.append(inline_figure("widths", title, described, draw_widths(drawn.widths)))
    return figures


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("hessdiag.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["breakable"] = lambda name: breakable(printable(name))
    environment.filters["short"] = short
    return environment.get_template("init_page.html.jinja")
