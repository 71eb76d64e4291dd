"""Libraries for training that a callback is made for."""

from __future__ import annotations

import importlib
from typing import Any

from hessdiag.errors import HessdiagError


def import_training_library(name: str, *, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Args:
        name: of the module, such as `lightning.pytorch`.
        extra: of hessdiag that installs it.
        purpose: what needs it.

    Raises:
        HessdiagError: it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = name.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        raise HessdiagError(
            f"{purpose} needs {library}, which is not installed: pip install 'hessdiag[{extra}]'"
        ) from error
