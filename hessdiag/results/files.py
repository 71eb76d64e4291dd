"""Writing result files: whole or not at all."""

import os
import tempfile
from pathlib import Path

from hessdiag.errors import HessdiagError


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` to `path` through a temporary file beside it, so that a kill never leaves half a file.

    Raises:
        HessdiagError: the folder does not exist or cannot be written; nothing is left behind.
    """
    return write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """As `write_text`, for bytes."""
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
