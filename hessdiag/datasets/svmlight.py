"""Read svmlight text, plain or compressed: `class index:value …`, a line an example."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hessdiag.datasets.extra import import_data_library
from hessdiag.errors import HessdiagError

OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}


def read_svmlight(path: Path) -> tuple[Any, npt.NDArray[np.float64]]:
    """Return rows, as a CSR matrix in float32, and labels.

    Raises:
        HessdiagError: the file cannot be read or is no svmlight text.
    """
    datasets = import_data_library("sklearn.datasets", package="scikit-learn")
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            rows, labels = datasets.load_svmlight_file(stream, dtype=np.float32)
    except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
        reason = " ".join(str(error).split())[:120]
        raise HessdiagError(
            f"cannot read {str(path)!r} ({reason}): it should hold lines of class index:value"
        ) from error
    if not rows.shape[0]:
        raise HessdiagError(f"cannot read {str(path)!r}: it holds no examples")
    return rows, labels
