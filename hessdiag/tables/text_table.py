"""Text tables: the one way in which rows become aligned columns, with lines above and below.

Texts are as wide as the terminal that they are printed in, or 120 columns where there is none. A table that is wider
than that has its long names shortened, then leaves out whole columns and says which: numbers are never cut short, and
rows never wrap.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len

WIDTH = 120  # where there is no terminal; sentences are never wider
MIN_NAME = 20  # columns that a name keeps as long as a column can be left out instead
LEAST_NAME = 8
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")  # that stands alone
GAP = 2  # columns between two
UNLIMITED = 100_000


@dataclass(frozen=True)
class TextTable:
    """A table without a frame, of which a narrow terminal shows fewer columns.

    Attributes:
        titles: of the columns.
        rows: texts, as many a row as there are titles; the first is a name.
        left: columns aligned on the left, the others on the right.
        expendable: titles of columns that may be left out, the most expendable one first.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int
    expendable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verbatim:
    """Text that is printed as it is, as code is."""

    text: str


def make_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, expendable: Sequence[str] = ()
) -> TextTable:
    """Make a table of names and numbers; see `TextTable` for the arguments."""
    return TextTable(tuple(titles), tuple(map(tuple, rows)), left, tuple(expendable))


def text_width() -> int:
    """Columns to print in: those of COLUMNS or of the terminal, `WIDTH` where there is neither."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        watched = sys.stdout.isatty()
    except (AttributeError, ValueError):  # no stdout, or a closed one
        watched = False
    return shutil.get_terminal_size((WIDTH, 24)).columns if watched else WIDTH


Part = str | TextTable | Verbatim


def plain_text(parts: Iterable[Part], *, whole: bool = False) -> str:
    """Lines and tables as they print in a terminal, without colour, markup or emoji.

    Args:
        parts: from top to bottom.
        whole: tables with all columns and full names, however wide.
    """
    columns = text_width()
    lines: list[str] = []
    for part in parts:
        if isinstance(part, TextTable):
            lines += table_lines(part, UNLIMITED if whole else columns)
        elif isinstance(part, Verbatim):
            lines += part.text.splitlines()
        else:
            lines += [line for each in part.split("\n") for line in wrapped(each, min(columns, WIDTH))]
    return "\n".join(line.rstrip() for line in lines)


def wrapped(line: str, width: int) -> list[str]:
    """A line of prose in as many as it takes; those of an indented one hang below it.

    >>> wrapped("  name: a reason", 12)
    ['  name: a', '    reason']
    """
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    hanging = f"{indent}  " if indent else ""
    fitted = wrap(text, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
    return fitted or [""]


def table_lines(table: TextTable, width: int) -> list[str]:
    """The table in `width` columns, and below it the titles that did not fit."""
    cells = [[_printable(cell) for cell in row] for row in (table.titles, *table.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    places = fitting_columns(table, widths, width)
    room = width - sum(GAP + widths[place] for place in places[1:])
    names = fit_names([row[0] for row in cells[1:]], max(room, LEAST_NAME))
    named = zip([cells[0][0], *names], cells, strict=True)
    shown = [[name, *(row[place] for place in places[1:])] for name, row in named]
    missing = [title for place, title in enumerate(table.titles) if place not in places]
    note = f"not shown in {width} columns: {', '.join(dict.fromkeys(missing))}"
    lines = _aligned(shown, left=sum(place < table.left for place in places))
    return lines + (wrapped(note, min(width, WIDTH)) if missing else [])


def fitting_columns(table: TextTable, widths: Sequence[int], width: int) -> list[int]:
    """Places of the columns that fit beside names of `MIN_NAME`, or beside the longest where that is shorter."""
    places = list(range(len(table.titles)))
    for title in table.expendable:
        if min(widths[0], MIN_NAME) + sum(GAP + widths[place] for place in places[1:]) <= width:
            break
        places = [place for place in places if table.titles[place] != title]
    return places


def _aligned(cells: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Rows of texts of the same width in each column; the first `left` columns are aligned on the left."""
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padding = [" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
        padded = [c + p if n < left else p + c for n, (c, p) in enumerate(zip(row, padding, strict=True))]
        lines.append((" " * GAP).join(padded))
    return lines


def _printable(cell: str) -> str:
    """A cell on one line: a name may hold anything."""
    return "".join(character if character.isprintable() else "�" for character in cell)


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


def grouped(title: str, reasons: Iterable[tuple[str, str]], *, whole: bool = False) -> list[str]:
    """As `listed`, what was left out for the same reason in one line; numbers in a reason become a range.

    >>> grouped("left out:", [("a.weight", "vector of 3 in LayerNorm"), ("b.weight", "vector of 5 in LayerNorm")])
    ['left out:', '  2 parameters such as a.weight: vector of 3 to 5 in LayerNorm']

    Args:
        title: of the lines.
        reasons: names with their reasons.
        whole: a line for each all the same.
    """
    if whole:
        return listed(title, reasons)
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, reason in reasons:
        alike.setdefault(NUMBER.sub("#", reason), []).append((name, reason))
    return listed(title, map(_together, alike.values()))


def _together(alike: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Name and reason of several parameters whose reasons differ in numbers alone."""
    (first, reason), *others = alike
    if not others:
        return first, reason
    found = zip(*(map(int, NUMBER.findall(each)) for _, each in alike), strict=True)
    ranges = iter([str(min(n)) if min(n) == max(n) else f"{min(n)} to {max(n)}" for n in found])
    return f"{len(alike)} parameters such as {first}", NUMBER.sub(lambda _: next(ranges), reason)


def listed(title: str, reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of what was left out and why, under a title; none where nothing was."""
    lines = [f"  {name}: {reason}" for name, reason in reasons]
    return [title, *lines] if lines else []
