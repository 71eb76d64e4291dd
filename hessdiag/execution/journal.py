"""Finished units of work in a file, so that a killed run goes on where it was.

The file is an SQLite database: each unit is one transaction, which a kill at any moment leaves whole or not there.
Numbers are kept bit for bit.
"""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch

from hessdiag.errors import HessdiagError

OURS = 0x68657373  # application id of the file: "hess"
WAIT = 60.0  # seconds that a rank waits for another one's transaction


TABLES = """
CREATE TABLE IF NOT EXISTS measurement (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS unit (key TEXT PRIMARY KEY, result BLOB NOT NULL);
"""


@contextmanager
def journal(path: str | os.PathLike[str] | None, identity: Mapping[str, str]) -> Iterator[Journal | None]:
    """An open `Journal`; None where no file is named."""
    if not path:
        yield None
        return
    opened = Journal(path, dict(identity) | {"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__})
    try:
        yield opened
    finally:
        opened.close()


class Journal:
    """The units of one measurement that are done.

    Args:
        path: the file; made when missing.
        identity: what the measurement is of: a file that says otherwise is refused.

    Raises:
        HessdiagError: the file cannot be used, is damaged, or belongs to another measurement.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise HessdiagError(f"cannot resume from {str(path)!r}: name a file in an existing folder")
        with self._explaining():
            self.connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
            with self._transaction():
                self._claim(identity)

    def get(self, key: str) -> Mapping[str, npt.NDArray[Any]] | None:
        """The result of a unit, if it is there."""
        with self._explaining():
            row = self.connection.execute("SELECT result FROM unit WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            with np.load(io.BytesIO(row[0]), allow_pickle=False) as arrays:
                return dict(arrays)

    def put(self, key: str, result: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep the result of a unit."""
        content = io.BytesIO()
        np.savez(content, **{name: np.asarray(value) for name, value in result.items()})  # type: ignore[arg-type]
        with self._explaining(), self._transaction():
            self.connection.execute("INSERT OR REPLACE INTO unit VALUES (?, ?)", (key, content.getvalue()))

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def _claim(self, identity: Mapping[str, str]) -> None:
        """Make the file ours, or check that it is."""
        (owner,) = self.connection.execute("PRAGMA application_id").fetchone()
        (tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and owner != OURS:
            raise HessdiagError(f"cannot resume from {str(self.path)!r}: it is a database of another program")
        if not tables:
            self.connection.execute(f"PRAGMA application_id = {OURS}")
            for statement in filter(str.strip, TABLES.split(";")):
                self.connection.execute(statement)
            self.connection.executemany("INSERT INTO measurement VALUES (?, ?)", identity.items())
        known = dict(self.connection.execute("SELECT key, value FROM measurement"))
        for key in known | dict(identity):
            if known.get(key) != identity.get(key):
                was, now = (each.get(key, "not asked for") for each in (known, identity))
                raise HessdiagError(
                    f"cannot resume from {str(self.path)!r}: it is of another measurement, {key} was {was} and is"
                    f" {now}; name a new file or delete this one"
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except HessdiagError:
            raise
        except (sqlite3.Error, BadZipFile, ValueError, OSError, EOFError) as error:  # all but the first: no arrays
            raise HessdiagError(
                f"cannot resume from {str(self.path)!r} ({error}): name a new file in a writable folder, or delete it"
            ) from error
