"""Writing result files, whole or not at all, and the folders that they are in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hessdiag.errors import HessdiagError


def make_folder(folder: str | os.PathLike[str], refusal: str = "") -> Path:
    """Make a folder where it is missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = refusal or f"cannot make the folder {str(folder)!r}"
        raise HessdiagError(f"{said} ({error.strerror})") from error
    return Path(folder)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` to `path` through a temporary file beside it, so that a kill never leaves half a file."""
    return write_bytes(path, text.encode(errors="backslashreplace"))  # halves of surrogate pairs, too


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """As `write_text`, for bytes."""
    if not isinstance(path, str | os.PathLike):
        raise HessdiagError(f"path is of type {type(path).__name__}: name a file")
    target = Path(path)
    temporary = None
    try:
        if target.exists() and not target.is_file():  # a pipe or /dev/stdout is written to, never replaced
            target.write_bytes(content)
            return target
        real = Path(os.path.realpath(target))  # a link stays one
        handle, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's own mode is private to the user
        os.replace(temporary, real)
    except BaseException as error:  # an interrupt leaves nothing behind either
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise HessdiagError(
            f"cannot write {str(target)!r} ({error.strerror}): name a file in an existing, writable folder"
        ) from error
    return target
