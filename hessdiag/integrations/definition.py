"""Where a network is defined: what a viewer of code shows a finding at."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

from hessdiag.errors import HessdiagError
from hessdiag.user_code.named_function import load_function


@dataclass(frozen=True)
class Definition:
    """Where a function or class begins.

    Attributes:
        path: of the file, relative to the folder that the command runs in, with slashes.
        line: counted from 1.
    """

    path: str
    line: int


def find_definition(model: str) -> Definition | None:
    """Find the function that a MODEL such as `./file.py:factory` names; None for one outside of this folder.

    The module has been imported, or the file been run, when the model was built: nothing is run here.
    """
    place, _, name = model.rpartition(":")
    if not name or not (place.endswith(".py") or place in sys.modules):
        return None
    try:
        function = inspect.unwrap(load_function(model, what="model").function)
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
        path = Path(file or "").resolve().relative_to(Path.cwd().resolve())
    except (HessdiagError, TypeError, OSError, ValueError):  # built in, without a source, or somewhere else
        return None
    return Definition(path.as_posix(), line)
