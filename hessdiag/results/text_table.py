"""Text that results print: sentences, and tables of aligned columns.

Text is as wide as the terminal, or 120 columns where there is none. A table that does not fit has its long names
shortened, then loses its last columns, which the line below it names. Numbers are never cut short and rows never wrap.
Parts come in the order of their importance, and in reverse where they are taller than the terminal: what matters most
stands where the eye is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size

from hessdiag.arguments import few

WIDTH = 120  # where there is no terminal; sentences are never wider
MIN_NAME = 20  # columns that names keep as long as another column can be left out instead
LEAST_NAME = 8
INDEX = re.compile(r"(?<![^.])\d+(?![^.])")  # of a layer among its siblings: a part of a dotted name
GAP = 2  # columns between two

Detail = Literal["brief", "table", "whole"]


@dataclass(frozen=True)
class TextTable:
    """A table without a frame."""

    titles: Sequence[str]  # of the columns, the most important ones first
    rows: Sequence[Sequence[str]]  # texts, as many a row as there are titles; the first is a name
    left: int = 1  # columns aligned on the left, the others on the right

    def with_values(self) -> TextTable:
        """The same without the columns that have no value in any row."""
        kept = [i < self.left or any(row[i] not in ("", "–") for row in self.rows) for i in range(len(self.titles))]
        return TextTable([*compress(self.titles, kept)], [[*compress(row, kept)] for row in self.rows], self.left)


class Printed:
    """A result that prints itself: a mixin."""

    def text(self, detail: Detail = "table") -> str:
        """Return the text."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()


def text_width() -> int:
    """Columns to print in: those of COLUMNS or of the terminal, `WIDTH` where there is neither."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def plain_text(parts: Iterable[str | TextTable], *, whole: bool = False) -> str:
    """Lines and tables as they print in a terminal, without colour or markup."""
    columns = text_width()
    lines: list[str] = []
    for part in parts:
        if isinstance(part, TextTable):
            lines += _table_lines(part, None if whole else columns)
        else:
            lines += [line for each in part.split("\n") for line in _wrapped(each, min(columns, WIDTH))]
    return "\n".join(line.rstrip() for line in lines)


def arranged(parts: Iterable[Iterable[str | TextTable]], *, whole: bool = False) -> str:
    """Parts, the most important first, as they print with an empty line between two, in a terminal or a file."""
    texts = [text for part in parts if (text := plain_text(part, whole=whole))]
    tall = sum(text.count("\n") + 2 for text in texts) > shutil.get_terminal_size((WIDTH, 10**6)).lines
    return "\n\n".join(reversed(texts) if tall else texts)


def siblings(named: Sequence[tuple[str, Hashable]]) -> dict[str, list[int]]:
    """Places of names that differ only in an index, and agree in what stands beside them, under one label.

    >>> siblings([("h.0.fc.weight", 1), ("h.1.fc.weight", 1), ("h.2.fc.weight", 2), ("u", 1)])
    {'h.#.fc ×2': [0, 1], 'h.2.fc': [2], 'u': [3]}
    >>> siblings([("4.weight", 1), ("2.weight", 1), ("0.weight", 1)])
    {'0–4 ×3': [0, 1, 2]}
    """
    groups: dict[tuple[str, Hashable], list[int]] = {}
    for place, (name, kind) in enumerate(named):
        groups.setdefault((INDEX.sub("#", name), kind), []).append(place)
    labels = {}
    for places in groups.values():
        names = [layer_of(named[place][0]) for place in places]
        differ = iter([len(set(each)) > 1 for each in zip(*map(INDEX.findall, names), strict=True)])
        label = INDEX.sub(lambda index: "#" if next(differ) else index[0], names[0])  # noqa: B023
        if len(names) > 1 and not any(map(str.isalpha, label)):  # of nothing but numbers
            ends = sorted(names, key=lambda name: [int(index) for index in INDEX.findall(name)])
            label = f"{ends[0]}–{ends[-1]}"
        labels[f"{label} ×{len(names)}" if len(names) > 1 else label] = places
    return labels


def label(names: Sequence[str], limit: int = 3) -> str:
    """Layers of parameters in a sentence, siblings in one."""
    return few(siblings([(name, None) for name in names]), limit)


def layer_of(name: str) -> str:
    """The layer whose weight has this name; the name itself where it is that of another parameter.

    >>> layer_of("fc1.weight"), layer_of("fc1.bias")
    ('fc1', 'fc1.bias')
    """
    return name.removesuffix(".weight")


def _wrapped(line: str, width: int) -> list[str]:
    """A line of prose in as many as it takes; those of an indented one hang below it.

    >>> _wrapped("  name: a reason", 12), _wrapped("below 25 %", 8)
    (['  name: a', '    reason'], ['below', '25 %'])
    """
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    hanging = f"{indent}  " if indent else ""
    text = text.replace(" %", "\u00a0%")  # which keeps both on one line
    lines = wrap(text, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
    return [each.replace("\u00a0%", " %") for each in lines] or [""]


def _table_lines(table: TextTable, width: int | None) -> list[str]:
    cells = [[printable(cell) for cell in row] for row in (table.titles, *table.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    kept, missing = len(widths), ""
    if width is not None:
        while kept > 2 and min(widths[0], MIN_NAME) + sum(GAP + each for each in widths[1:kept]) > width:
            kept -= 1
        names = fit_names([row[0] for row in cells[1:]], max(LEAST_NAME, width - sum(GAP + w for w in widths[1:kept])))
        for row, fitted in zip(cells[1:], names, strict=True):
            row[0] = fitted
        widths[0] = max(cell_len(row[0]) for row in cells)
        missing = ", ".join(dict.fromkeys(map(str.strip, table.titles[kept:])))
    lines = [(" " * GAP).join(_aligned(row[:kept], widths, table.left)) for row in cells]
    return lines + (_wrapped(f"not shown in {width} columns: {missing}", min(width or 0, WIDTH)) if missing else [])


def _aligned(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    padded = [set_cell_size(cell, width) for cell, width in zip(row[:left], widths, strict=False)]
    rest = zip(row[left:], widths[left:], strict=False)
    return padded + [" " * (width - cell_len(cell)) + cell for cell, width in rest]


def printable(cell: str) -> str:
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
    """Lines of what was left out and why, one a reason, under a title; none where nothing was.

    >>> grouped("left out:", [("ln.0.weight", "vector of 3 in LayerNorm"), ("ln.1.weight", "vector of 3 in LayerNorm")])
    ['left out:', '  ln.# ×2: vector of 3 in LayerNorm']
    """
    alike: dict[str, list[str]] = {}
    for name, reason in reasons:
        alike.setdefault(reason, []).append(name)
    lines = [f"  {name}: {reason}" for reason, names in alike.items() for name in (names if whole else [label(names)])]
    return [title, *lines] if lines else []
