"""Templates of pages: what they do to every text that is put into them, and the one script that they may run."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

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
    made.globals["script"] = Markup(script())
    made.globals["script_digest"] = script_digest()
    return made


@cache
def script() -> str:
    """Read the script of every page."""
    return files("hessdiag.html").joinpath("page.js").read_text(encoding="utf-8")


def script_digest() -> str:
    """Return the digest by which a page's policy allows its script, and no other."""
    return base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
