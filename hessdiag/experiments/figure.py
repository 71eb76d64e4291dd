"""What every figure of the paper has here: how it is measured, kept, drawn and summed up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
        views: other figures of the same numbers, by what is added to the name.
        summary: the lines to print.
    """

    name: str
    steps: Callable[..., int]
    measure: Callable[..., M]
    write: Callable[[M, Path], object]
    read: Callable[[Path], M]
    draw: Callable[[M], Any]
    summary: Callable[[M], list[str]]
    views: Mapping[str, Callable[[M], Any]] = field(default_factory=dict)

    def save(self, measured: M, out: Path) -> list[Path]:
        """Write the numbers as JSON, and draw the figures from that file; return the files."""
        source = out / f"{self.name}.json"
        self.write(measured, source)
        return [source, *self.redraw(out)]

    def redraw(self, out: Path) -> list[Path]:
        """Draw the figures from the JSON in a folder, and save them beside it as png and svg; return these files."""
        from hessdiag.plots import save

        measured = self.read(out / f"{self.name}.json")
        drawn = [save(self.draw(measured), out / self.name)]
        drawn += [save(draw(measured), out / f"{self.name}-{view}") for view, draw in self.views.items()]
        return [path for paths in drawn for path in paths]
