"""Where the records of a monitor go: a CSV file, TensorBoard, or any function of the user."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hessdiag.arguments import kind_of
from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text
from hessdiag.training.monitor_record import Record

Log = Callable[[Record, int], object]


def logs_of(asked: Any) -> list[Log]:
    """Return a function for each of the logs that were asked for, one or a list of them.

    Raises:
        HessdiagError: one is no CSV file, TensorBoard writer or function.
    """
    return [_log(each) for each in (asked if isinstance(asked, (list, tuple)) else [asked])]


def _log(asked: Any) -> Log:
    if isinstance(asked, (str, os.PathLike)):
        return CsvLog(asked)
    if callable(getattr(asked, "add_scalar", None)):
        return TensorBoardLog(asked)
    if callable(asked):
        return asked  # type: ignore[no-any-return]
    raise HessdiagError(
        f"log is {kind_of(asked)}: pass the path of a .csv file, a TensorBoard SummaryWriter,"
        " or a function such as lambda record, step: print(step, record)"
    )


class CsvLog:
    """One row a measurement in a CSV file; a file that is there is continued.

    Args:
        path: ends with `.csv`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix != ".csv":
            raise HessdiagError(f"log {os.fspath(path)!r}: name a file that ends with .csv")
        if not self.path.parent.is_dir():
            raise HessdiagError(
                f"log {os.fspath(path)!r}: the folder {str(self.path.parent)!r} does not exist, make it"
            )
        self.columns: list[str] = []

    def __call__(self, record: Record, step: int) -> None:
        """Write a row; a column that is new is added to all rows."""
        row = {"step": step, **record}
        rows = self._rows() if not self.columns else []
        if new := [key for key in row if key not in self.columns]:
            rows = rows or self._rows()
            self.columns += new
            write_text(self.path, _lines(self.columns, [*rows, row], header=True))
            return
        with self.path.open("a", encoding="utf-8", newline="") as stream:
            stream.write(_lines(self.columns, [row], header=False))

    def _rows(self) -> list[dict[str, Any]]:
        """What the file holds; its columns are taken over."""
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
            self.columns = list(reader.fieldnames or [])
        return rows


def _lines(columns: Sequence[str], rows: Sequence[dict[str, Any]], *, header: bool) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


class TensorBoardLog:
    """Numbers as scalars and words as texts of a `torch.utils.tensorboard.SummaryWriter`."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def __call__(self, record: Record, step: int) -> None:
        """Add every entry under its key."""
        for key, value in record.items():
            if isinstance(value, str):
                self.writer.add_text(key, value, step)
            else:
                self.writer.add_scalar(key, value, step)
