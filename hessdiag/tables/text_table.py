"""Text tables: the one way in which rows become aligned columns, with lines above and below."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 120


def make_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, fit: bool = False) -> Table:
    """Make a table without a frame: the first column holds names, numbers are aligned on the right.

    Args:
        titles: of the columns.
        rows: texts, as many a row as there are titles.
        left: columns aligned on the left.
        fit: shorten names to the room that the other columns leave in `WIDTH`.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < left else "right", no_wrap=True)
    names = [row[0] for row in rows]
    if fit:
        taken = sum(2 + max(map(len, column)) for column in zip(titles[1:], *(row[1:] for row in rows), strict=True))
        names = fit_names(names, WIDTH - taken)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row[1:])
    return table


def plain_text(parts: Iterable[str | Table]) -> str:
    """Lines and tables as they print in a terminal of `WIDTH` columns, without colour, markup or emoji."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=WIDTH,
        color_system=None,
        legacy_windows=False,
        markup=False,  # a name may hold brackets
        emoji=False,
        force_jupyter=False,  # a notebook gets the text too
    )
    for part in parts:
        console.print(part, highlight=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def fit_names(names: Sequence[str], width: int) -> list[str]:
    """Long names with a part left out, in the place that leaves most of them distinct, as near to the front as can be.

    >>> fit_names(["encoder.layers.0.weight", "encoder.layers.1.weight"], 10)
    ['….0.weight', '….1.weight']
    """

    def cut(name: str, head: int) -> str:
        return name if len(name) <= width else f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"

    best = max(range(width), key=lambda head: len({cut(name, head) for name in names}))
    return [cut(name, best) for name in names]


def size(shape: Sequence[int]) -> str:
    """Show a shape.

    >>> size((6, 3, 5, 5)), size(())
    ('6×3×5×5', '1')
    """
    return "×".join(map(str, shape)) or "1"


def listed(title: str, reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of what was left out and why, under a title; none where nothing was."""
    lines = [f"  {name}: {reason}" for name, reason in reasons]
    return [title, *lines] if lines else []
