"""Download a file once: whole or not at all, with its checksum recorded at the first time and checked ever after."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from hessdiag.datasets.extra import import_data_library
from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text

CHECKSUMS = "checksums.txt"  # lines of `name sha256`, in the folder of the files
TIMEOUT = 60  # seconds without a byte
Bar = Any  # what pooch calls a progress bar: total, update(n), reset(), close()


def cache_folder(named: str = "") -> Path:
    """Return the folder of downloaded files: the one named, `HESSDIAG_CACHE`, or the user's cache."""
    named = named or os.environ.get("HESSDIAG_CACHE", "")
    return Path(named) if named else Path(import_data_library("pooch", package="pooch").os_cache("hessdiag"))


def fetch(url: str, folder: Path, *, bar: Bar = None, known: str | None = None) -> Path:
    """Return the file of that address in `folder`; download it if it is not there.

    Args:
        url: the address; the file is named as its last part.
        folder: made when missing.
        bar: shows progress.
        known: checksum to ask for, as `md5:…`; by default the one recorded at the first download, if any.

    Raises:
        HessdiagError: it cannot be downloaded or kept, or it is not the file that was downloaded first.
    """
    pooch = import_data_library("pooch", package="pooch")
    requests = import_data_library("requests", package="pooch")
    name = url.rsplit("/", 1)[-1]
    _make(folder)
    recorded = recorded_checksums(folder)
    downloader = pooch.HTTPDownloader(progressbar=bar or False, timeout=TIMEOUT)
    pooch.get_logger().setLevel(logging.WARNING)  # its notes would stand among ours
    try:
        wanted = f"sha256:{recorded[name]}" if name in recorded else known
        path = Path(pooch.retrieve(url, known_hash=wanted, fname=name, path=folder, downloader=downloader))
    except requests.RequestException as error:
        raise HessdiagError(f"cannot download {url} ({_reason(error)}): try again, or pass --data-dir") from error
    except ValueError as error:  # what pooch raises for another checksum
        raise HessdiagError(
            f"{url} is not what was expected, its checksum differs: try again; if the file has changed for good, delete"
            f" its line in {str(folder / CHECKSUMS)!r}"
        ) from error
    except OSError as error:
        raise _unusable(folder, error) from error
    if name not in recorded:
        _record(folder, recorded | {name: pooch.file_hash(str(path), alg="sha256")})
    return path


def recorded_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that was downloaded to the folder."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise HessdiagError(f"cannot read {str(folder / CHECKSUMS)!r} ({error}): delete it") from error
    return {name: checksum for name, _, checksum in (line.partition(" ") for line in lines) if checksum}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> HessdiagError:
    return HessdiagError(f"cannot keep files in {str(folder)!r} ({error.strerror}): name another folder with --cache")


def _record(folder: Path, checksums: dict[str, str]) -> None:
    write_text(folder / CHECKSUMS, "".join(f"{name} {checksum}\n" for name, checksum in sorted(checksums.items())))


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code} {response.reason}"
    return f"{type(error).__name__}, {' '.join(str(error).split())[:120]}"
