"""The way from a result up to what shows it: a table or a page, registered by name and imported when first asked for.

Results are plain numbers and know no presentation. `hessdiag/__init__.py` registers who presents what.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Literal

from hessdiag.results.files import write_text

Form = Literal["table", "page"]

_RENDERERS: dict[tuple[Form, str], str] = {}


def register(form: Form, result: str, renderer: str) -> None:
    """Name what renders a class of results.

    Args:
        form: `"table"` for `repr`, `"page"` for `to_html`.
        result: name of the class.
        renderer: `package.module:function`, which takes the result and returns text.
    """
    _RENDERERS[form, result] = renderer


def render(form: Form, result: Any) -> str:
    """Render a result by what is registered for its class."""
    module, _, function = _RENDERERS[form, type(result).__name__].partition(":")
    return str(getattr(import_module(module), function)(result))


class Tabled:
    """A result whose `repr` is its table: a mixin."""

    def __repr__(self) -> str:
        return render("table", self)


class Paged:
    """A result that has a page: a mixin."""

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return one HTML page that needs nothing else; also write it to `path` when one is given.

        The same result gives the same bytes.
        """
        text = render("page", self)
        if path is not None:
            write_text(path, text)
        return text
