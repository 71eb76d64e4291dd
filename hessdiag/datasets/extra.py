"""The libraries that reading and downloading data sets needs."""

from __future__ import annotations

import importlib
from typing import Any

from hessdiag.errors import HessdiagError


def import_data_library(module: str, *, package: str) -> Any:
    """Import one of them.

    Raises:
        HessdiagError: it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != module.partition(".")[0]:
            raise
        raise HessdiagError(
            f"data sets need {package}, which is not installed: pip install 'hessdiag[data]'"
        ) from error
