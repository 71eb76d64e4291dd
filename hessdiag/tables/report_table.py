"""A report as an aligned table of at most 120 columns."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from hessdiag.results.numbers import short
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.verdict import judge, lost_in_noise, missed_rtol

WIDTH = 120
COLUMNS = ("block", "shape", "ς", "γ", "γ curv.", "ν", "σ²", "± %", "γ/σ²", "relative")
UNDECIDED = "undecided"


def render(report: Report) -> str:
    """The table with what was measured above it, and the spread and what was skipped below."""
    return plain_text([*heading(report), block_table(report), *footing(report)])


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
    for title in COLUMNS[:2]:
        table.add_column(title, no_wrap=True)
    for title in COLUMNS[2:]:
        table.add_column(title, justify="right", no_wrap=True)
    rows = [cells(block) for block in report.blocks]
    taken = sum(2 + max(map(len, column)) for column in zip(COLUMNS[1:], *(row[1:] for row in rows), strict=True))
    names = fit_names([block.name for block in report.blocks], WIDTH - taken)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row[1:])
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
        f"spread over weight blocks, max/min:  γ {short(spread['gamma'])}   ν {short(spread['nu'])}"
        f"   σ² {short(spread['avg_sq_singular_value'])}",
    ]
    if any(block.ended != "exact" for block in report.blocks):
        lines.append(sampling(report))
    if line := noise(report):
        lines.append(line)
    lines.append(judge(report).sentence)
    if report.skipped:
        lines.append("not measured:")
        lines += [f"  {name}: {reason}" for name, reason in report.skipped]
    return lines


def sampling(report: Report) -> str:
    """What came of the random probing."""
    missed = [block.name for block in report.blocks if missed_rtol(block, report.rtol)]
    most = max((block.products for block in report.blocks), default=0)
    if missed:
        return f"sampling: rtol {report.rtol:g} missed with at most {most} products a block on {', '.join(missed)}"
    return f"sampling: rtol {report.rtol:g} reached with at most {most} products a block"


def noise(report: Report) -> str:
    """The range of the curvature noise scale over the weight blocks; nothing where it was not measured."""
    measured = [b for b in report.weights if not math.isnan(b.noise_scale)]
    known = sorted((b for b in measured if _has_interval(b)), key=lambda b: b.noise_scale)
    what = "curvature noise scale, in examples:  "
    if not known:
        return f"{what}undecided, the examples are too few to tell" if measured else ""
    ends = [known[0]] if len(known) == 1 else [known[0], known[-1]]
    scales = " to ".join(
        f"{short(block.noise_scale)} ± {short(block.noise_scale_stderr)} ({block.name})" for block in ends
    )
    others = len(measured) - len(known)
    return f"{what}{scales}" + (f"; undecided for {others} of {len(measured)} blocks" if others else "")


def _has_interval(block: BlockReport) -> bool:
    return block.noise_scale > 0 and math.isfinite(block.noise_scale_stderr)


def cells(block: BlockReport) -> list[str]:
    """The texts of one row, in the order of `COLUMNS`."""
    error = 100 * block.stderr / block.avg_sq_singular_value if block.avg_sq_singular_value > 0 else math.nan
    return [
        block.name,
        "×".join(map(str, block.shape)) or "1",
        short(block.activation_scaling),
        short(block.gamma),
        short(block.gamma_curvature),
        short(block.nu),
        UNDECIDED if lost_in_noise(block) else short(block.avg_sq_singular_value),
        "exact" if block.ended == "exact" else short(math.nan if lost_in_noise(block) else error),
        short(math.nan if lost_in_noise(block) else block.ratio),
        short(math.nan if lost_in_noise(block) else block.relative_ratio),
    ]
