"""Two real data sets as svmlight files, from scikit-learn's copies."""

from __future__ import annotations

from pathlib import Path

from sklearn.datasets import dump_svmlight_file, load_iris, load_wine


def write_files(folder: Path) -> Path:
    """Write iris and wine, named as LIBSVM's files are."""
    for name, load in (("iris.scale", load_iris), ("wine.scale", load_wine)):
        rows, targets = load(return_X_y=True)
        dump_svmlight_file(rows, targets + 1, str(folder / name), zero_based=False)
    return folder
