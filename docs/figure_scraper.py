"""Pictures for the gallery of plots: hessdiag's figures do not go through pyplot, where Sphinx-Gallery would look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

from hessdiag.view.plots import save


def scrape(block: tuple[Any, ...], found: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save every figure that the block has made, and return the text that shows them."""
    paths = []
    drawn: set[int] = found.setdefault("figures_drawn", set())
    for figure in list(found["example_globals"].values()):
        if isinstance(figure, Figure) and id(figure) not in drawn:
            drawn.add(id(figure))
            path = next(found["image_path_iterator"])
            save(figure, path)
            paths.append(path)
    return figure_rst(paths, settings["src_dir"])


def _get_sg_image_scraper() -> Callable[..., str]:
    """What Sphinx-Gallery asks a module for."""
    return scrape
