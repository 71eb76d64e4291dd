"""Libraries that hessdiag can use but does not need."""

from __future__ import annotations

import importlib
from typing import Any

from hessdiag.errors import HessdiagError
from hessdiag.user_code.named_function import foreign_code


def import_extra(library: str, *, specification: str) -> Any:
    """An optional library.

    Raises:
        HessdiagError: it is not installed, with the command that installs it, or does not import.
    """
    label = f"model {specification!r}"
    with foreign_code(label):
        try:
            return importlib.import_module(library)
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
            raise HessdiagError(f"{label} needs {library}, which is not installed: pip install {library}") from error
