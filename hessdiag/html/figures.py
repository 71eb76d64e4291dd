"""Figures as inline SVG: nothing in them names anything, so that several fit in one page."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace

from markupsafe import Markup
from matplotlib.figure import Figure

from hessdiag.html.text import printable
from hessdiag.plots import draw_heatmap, draw_layers
from hessdiag.plots.style import context
from hessdiag.results.init_check import InitCheck, SchemeCheck
from hessdiag.results.numbers import short
from hessdiag.results.report import Report

# Ids are referred to by `url(#id)` in attributes and by `href="#id"`.
_REFERENCE = re.compile(r"url\(#([^)]+)\)|^#(.+)$")


@dataclass(frozen=True)
class InlineFigure:
    """A figure ready for a page.

    Attributes:
        key: short name, which also starts every id in `svg`.
        title, description: what it shows, for readers who cannot see it.
        width: its natural width in points.
        svg: the `<svg>` element, with no names from the model in it.
    """

    key: str
    title: str
    description: str
    width: float
    svg: Markup


def inline_figures(report: Report) -> list[InlineFigure]:
    """The figures that have something to show: the map of weight blocks, and the layers' numbers side by side."""
    drawn = _literal(report)
    figures = []
    if report.weights:
        title = "Map of the size of every pair of weight blocks"
        figures.append(inline_figure("heatmap", title, _describe(report), draw_heatmap(drawn)))
    if report.blocks:
        title = "γ, σ² and ν of every layer"
        figures.append(inline_figure("layers", title, _describe(report), draw_layers(drawn)))
    return figures


def _literal(report: Report) -> Report:
    """A copy whose names are drawn as they are spelled: fonts lack control characters, and $ would start a formula."""

    return replace(
        report,
        blocks=tuple(replace(block, name=_spell(block.name)) for block in report.blocks),
        heatmap=replace(report.heatmap, names=tuple(map(_spell, report.heatmap.names))),
        model=_spell(report.model),
        init=_spell(report.init),
        loss=_spell(report.loss),
        method=_spell(report.method),
    )


def spelled(check: InitCheck) -> InitCheck:
    """As `_literal`, of an initialisation check."""

    def of(scheme: SchemeCheck) -> SchemeCheck:
        setups = scheme.setups
        names = tuple(map(_spell, setups.names))
        model, init = _spell(setups.model), _spell(setups.init)
        return replace(scheme, setups=replace(setups, names=names, model=model, init=init))

    widths = check.widths
    if widths is not None:
        widths = replace(widths, names=tuple(map(_spell, widths.names)))
    return replace(check, init=_spell(check.init), schemes=tuple(map(of, check.schemes)), widths=widths)


def _spell(name: str) -> str:
    return printable(name).replace("$", r"\$")


def _describe(report: Report) -> str:
    spread = report.spread
    return (
        f"Largest over smallest value among the {len(report.weights)} weight blocks: γ {short(spread['gamma'])},"
        f" ν {short(spread['nu'])}, σ² {short(spread['avg_sq_singular_value'])}."
        " The table above holds the numbers of every block."
    )


def inline_figure(key: str, title: str, description: str, figure: Figure) -> InlineFigure:
    """A figure as an element of a page; see `InlineFigure`."""
    stream = io.BytesIO()
    with context():
        figure.savefig(stream, format="svg", dpi=200)
    width = 72 * float(figure.get_size_inches()[0])
    return InlineFigure(key, title, description, width, Markup(_clean(stream.getvalue(), key, title, description)))


def _clean(svg: bytes, key: str, title: str, description: str) -> str:
    """Matplotlib's SVG as an element of HTML.

    Comments and metadata go. Of the ids, which hold names from the model, only those that are referred to are left,
    numbered. Style sheets go too, since they would reach the whole page; the page's own has matplotlib's one rule.
    """
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in [c for c in parent if _local(c.tag) in ("metadata", "style", "title", "desc")]:
            parent.remove(child)
    ids = _numbered_ids(root, key)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): _rename(value, ids) for name, value in element.attrib.items() if name != "id"}
        if element.get("id") in ids:
            attributes["id"] = ids[element.attrib["id"]]
        element.attrib.clear()
        element.attrib.update(attributes)
    _name(root, key, title, description)
    return ET.tostring(root, encoding="unicode")


def _numbered_ids(root: ET.Element, key: str) -> dict[str, str]:
    """New names of the ids that something in the figure refers to."""
    known = {element.get("id") for element in root.iter()}
    texts = [value for element in root.iter() for value in element.attrib.values()]
    used = [match[1] or match[2] for text in texts for match in _REFERENCE.finditer(text)]
    return {old: f"{key}-{number}" for number, old in enumerate(dict.fromkeys(u for u in used if u in known), start=1)}


def _rename(value: str, ids: dict[str, str]) -> str:
    def renamed(match: re.Match[str]) -> str:
        old = match[1] or match[2]
        return match[0].replace(old, ids[old]) if old in ids else match[0]  # "#ffffff" refers to nothing

    return _REFERENCE.sub(renamed, value)


def _local(name: str) -> str:
    """A name without its namespace: HTML knows those of SVG, and `href` needs none."""
    return name.rpartition("}")[2]


def _name(root: ET.Element, key: str, title: str, description: str) -> None:
    """Say what the figure shows, scale it with the page, and let assistive technology pass over its parts."""
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-labelledby": f"{key}-title", "aria-describedby": f"{key}-description"})
    for tag, text in (("desc", description), ("title", title)):
        element = ET.Element(tag, {"id": f"{key}-{'description' if tag == 'desc' else tag}"})
        element.text = text
        root.insert(0, element)
