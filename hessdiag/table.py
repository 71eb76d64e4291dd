"""A report as an aligned table of at most 120 columns."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from hessdiag.report import BlockReport, Report

WIDTH = 120
NUMBERS = ("ς", "γ", "γ curv.", "ν", "σ²", "± %", "γ/σ²", "relative")


def render(report: Report) -> str:
    """The table with what was measured above it, and the spread and what was skipped below."""
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
    for line in heading(report):
        console.print(line, highlight=False)
    console.print(block_table(report))
    for line in footing(report):
        console.print(line, highlight=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def heading(report: Report) -> list[str]:
    """What was measured, of what."""
    matrix = {"ggn": "Gauss-Newton", "hessian": "Hessian"}[report.matrix]
    view = "of each example, averaged" if report.per == "example" else "of the batch mean"
    return [
        f"{report.model}, init {report.init}: {matrix} {view}",
        f"loss {report.loss}, batch {report.batch_size} ({report.data}), seed {report.seed},"
        f" {report.device} {report.dtype}",
        f"method {report.method} ({report.method_reason})",
        "",
    ]


def block_table(report: Report) -> Table:
    """One row a block; names get the room that shapes and numbers leave."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("block", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for title in NUMBERS:
        table.add_column(title, justify="right", no_wrap=True)
    rows = [_cells(block) for block in report.blocks]
    taken = sum(2 + max(map(len, column)) for column in zip(("shape", *NUMBERS), *rows, strict=True))
    names = fit_names([block.name for block in report.blocks], WIDTH - taken)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row)
    return table


def fit_names(names: Sequence[str], width: int) -> list[str]:
    """Long names with a part left out, in the place that leaves most of them distinct, as near to the front as can be.

    >>> fit_names(["encoder.layers.0.weight", "encoder.layers.1.weight"], 10)
    ['….0.weight', '….1.weight']
    """

    def cut(name: str, head: int) -> str:
        return name if len(name) <= width else f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"

    best = max(range(width), key=lambda head: len({cut(name, head) for name in names}))
    return [cut(name, best) for name in names]


def footing(report: Report) -> list[str]:
    """Spread over the weight blocks, what ended the sampling, and what was left out."""
    spread = report.spread
    lines = [
        "",
        f"spread over weight blocks, max/min:  γ {_short(spread['gamma'])}   ν {_short(spread['nu'])}"
        f"   σ² {_short(spread['avg_sq_singular_value'])}",
    ]
    if report.method == "probe":
        lines.append(_sampling(report))
    if report.skipped:
        lines.append("not measured:")
        lines += [f"  {name}: {reason}" for name, reason in report.skipped]
    return lines


def _sampling(report: Report) -> str:
    short = [block.name for block in report.blocks if block.ended == "budget"]
    most = max((block.products for block in report.blocks), default=0)
    if short:
        return f"sampling: budget of {most} products spent before rtol {report.rtol:g} on {', '.join(short)}"
    return f"sampling: rtol {report.rtol:g} reached with at most {most} products a block"


def _cells(block: BlockReport) -> list[str]:
    error = 100 * block.stderr / block.avg_sq_singular_value if block.avg_sq_singular_value > 0 else math.nan
    return [
        "×".join(map(str, block.shape)) or "1",
        _short(block.activation_scaling),
        _short(block.gamma),
        _short(block.gamma_curvature),
        _short(block.nu),
        _short(block.avg_sq_singular_value),
        "exact" if block.ended == "exact" else _short(error),
        _short(block.ratio),
        _short(block.relative_ratio),
    ]


def _short(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"
