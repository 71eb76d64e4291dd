"""The way from a result up to what shows or judges it, registered by name and imported when first asked for.

Results are plain numbers and know no presentation. `hessdiag/__init__.py` registers who presents and judges what.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from hessdiag.results.files import write_text
from hessdiag.results.text_table import Detail, Printed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Form = Literal["table", "brief", "whole", "page", "fragment", "verdict", "layers", "heatmap", "ratios"]

_RENDERERS: dict[tuple[Form, str], str] = {}


def register(form: Form, result: str, renderer: str) -> None:
    """Name what shows or judges a class of results.

    Args:
        form: `"table"` for `repr`, `"brief"` and `"whole"` for less and more of it, `"page"` for `to_html`,
            `"fragment"` for a notebook, `"verdict"` for what is said of it, else the name of a figure.
        result: name of the class.
        renderer: `package.module:function`, which takes the result.
    """
    _RENDERERS[form, result] = renderer


def render(form: Form, result: Any) -> Any:
    """Call what is registered for the class of a result: text for a table or a page, a verdict, or a figure.

    A table serves where nothing is registered for less or more than it.
    """
    kind = type(result).__name__
    if form in ("brief", "whole") and (form, kind) not in _RENDERERS:
        form = "table"
    module, _, function = _RENDERERS[form, kind].partition(":")
    return getattr(import_module(module), function)(result)


class Tabled(Printed):
    """A result whose text is registered: a mixin."""

    def text(self, detail: Detail = "table") -> str:
        """Return what is registered."""
        return str(render(detail, self))


class Paged:
    """A result that has a page: a mixin."""

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return one HTML page that needs nothing else; also write it to `path` when one is given.

        The same result gives the same bytes.
        """
        text = str(render("page", self))
        if path is not None:
            write_text(path, text)
        return text


@dataclass(frozen=True)
class Plots:
    """Figures of a report; `hessdiag.plots.save(figure, "layers.png")` writes one, a notebook shows it.

    Attributes:
        report: what is drawn.
    """

    report: Any

    def layers(self) -> Figure:
        """Draw γ, σ² and ν of every layer, see `hessdiag.plots.draw_layers`."""
        return cast("Figure", render("layers", self.report))

    def heatmap(self) -> Figure:
        """Draw the map of all pairs of weight blocks, see `hessdiag.plots.draw_heatmap`."""
        return cast("Figure", render("heatmap", self.report))

    def ratios(self) -> Figure:
        """Draw γ/σ² of every weight block, see `hessdiag.plots.draw_ratios`."""
        return cast("Figure", render("ratios", self.report))
