"""Load a LIBSVM multi-class data set by name, from a folder or from the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hessdiag.datasets.dataset import Dataset
from hessdiag.datasets.download import Bar, cache_folder, fetch
from hessdiag.datasets.libsvm_catalogue import SITE, LibsvmEntry, find_entry
from hessdiag.datasets.svmlight import OPENERS, read_svmlight
from hessdiag.errors import HessdiagError


def load_libsvm(name: str, *, data_dir: Path | None = None, mirror: str = SITE) -> Dataset:
    """Load the training part.

    Args:
        name: of `CATALOGUE`.
        data_dir: folder of files named as on the LIBSVM page, compressed or not; None downloads to the cache.
        mirror: address of the folder to download from.

    Raises:
        HessdiagError: no such data set, no file of it, or no svmlight text.
    """
    entry = find_entry(name)
    if data_dir is None:
        path = fetch_libsvm(name, cache_folder() / "libsvm", mirror=mirror)
    else:
        path = find_file(name, data_dir)
    rows, labels = read_svmlight(path)
    values, targets = np.unique(labels, return_inverse=True)
    return Dataset(name, rows, targets.astype(np.int64), len(values), describe_difference(entry, path, rows.shape))


def fetch_libsvm(name: str, folder: Path, *, mirror: str = SITE, bar: Bar = None) -> Path:
    """Return the file of the training part in the folder; download it if it is not there."""
    return fetch(f"{mirror.rstrip('/')}/{find_entry(name).file}", folder, bar=bar)


def find_file(name: str, folder: Path) -> Path:
    """Find the training part in a folder: LIBSVM's own file, or else a stand-in.

    Raises:
        HessdiagError: there is none.
    """
    entry = find_entry(name)
    if not folder.is_dir():
        raise HessdiagError(f"--data-dir {str(folder)!r}: there is no such folder")
    stem = without_compression(entry.file)
    for candidate in (stem, *entry.stand_ins):
        for ending in ("", *OPENERS):
            if (folder / f"{candidate}{ending}").is_file():
                return folder / f"{candidate}{ending}"
    own = f"{stem}.bz2" if stem == entry.file else entry.file
    expected = " or ".join([own, *(f"{candidate}.bz2" for candidate in entry.stand_ins)])
    raise HessdiagError(f"--data-dir {str(folder)!r} has no {name}: it should hold {expected}")


def describe_difference(entry: LibsvmEntry, path: Path, shape: tuple[int, int]) -> str:
    """Say how the file that was read differs from LIBSVM's; empty where it does not."""
    read = without_compression(path.name)
    differences = [entry.stand_ins[read]] if read in entry.stand_ins else []
    if shape[0] != entry.rows:
        differences.append(f"{shape[0]:,} rows, LIBSVM has {entry.rows:,}")
    if shape[1] != entry.features:
        differences.append(f"{shape[1]:,} features, LIBSVM has {entry.features:,}")
    return "; ".join(differences)


def without_compression(name: str) -> str:
    """Drop the ending of a compressed file.

    >>> without_compression("iris.scale.bz2")
    'iris.scale'
    """
    ending = next((ending for ending in OPENERS if name.endswith(ending)), "")
    return name.removesuffix(ending)
