"""Templates of pages: what they do to every text that is put into them."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from hessdiag.html.text import breakable
from hessdiag.plots.labels import printable
from hessdiag.results.numbers import short


@cache
def environment() -> Environment:
    """Make the one environment: it escapes whatever is put into a template, and refuses names that it does not know."""
    made = Environment(
        loader=PackageLoader("hessdiag.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters["breakable"] = lambda name: breakable(printable(name))
    made.filters["short"] = short
    return made
