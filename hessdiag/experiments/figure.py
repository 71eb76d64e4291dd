"""What every figure of the paper has here: how it is measured, kept, drawn and summed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[M]):
    """One figure or table of the paper, measured anew.

    Attributes:
        name: what the command line and the files call it.
        steps: the units of work, of `quick`.
        measure: measures it, of `quick`, `seed`, `device` and the `work` that shares and keeps units.
        write, read: save what was measured as JSON, and read it back.
        draw: makes the Matplotlib figure of what was measured.
        summary: the lines to print.
    """

    name: str
    steps: Callable[..., int]
    measure: Callable[..., M]
    write: Callable[[M, Path], object]
    read: Callable[[Path], M]
    draw: Callable[[M], Any]
    summary: Callable[[M], list[str]]

    def save(self, measured: M, out: Path) -> list[Path]:
        """Write the numbers as JSON, draw the figure from that file, and save it as png and svg; return the files."""
        from hessdiag.plots import save

        source = out / f"{self.name}.json"
        self.write(measured, source)
        return [source, *save(self.draw(self.read(source)), out / self.name)]
