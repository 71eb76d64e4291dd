"""A report as an aligned table of at most 120 columns."""

from __future__ import annotations

import math

from rich.table import Table

from hessdiag.results.numbers import short
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.verdict import judge
from hessdiag.tables.text_table import listed, make_table, plain_text, size

COLUMNS = ("block", "shape", "ς", "γ", "γ curv.", "ν", "σ²", "± %", "γ/σ²", "relative")


def render(report: Report) -> str:
    """The table with what was measured above it, and the spread and what was skipped below."""
    return plain_text([*header(report), block_table(report), *footer(report)])


def header(report: Report) -> list[str]:
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
    return make_table(COLUMNS, [cells(block) for block in report.blocks], left=2, fit=True)


def footer(report: Report) -> list[str]:
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
    return lines + listed("not measured:", report.skipped)


def sampling(report: Report) -> str:
    """What ended the random probing."""
    unfinished = [block.name for block in report.blocks if block.ended == "budget"]
    most = max((block.products for block in report.blocks), default=0)
    if unfinished:
        return f"sampling: budget of {most} products spent before rtol {report.rtol:g} on {', '.join(unfinished)}"
    return f"sampling: rtol {report.rtol:g} reached with at most {most} products a block"


def noise(report: Report) -> str:
    """The range of the curvature noise scale over the weight blocks; nothing where it was not measured."""
    told = [b for b in report.weights if not (math.isnan(b.noise_scale) or math.isinf(b.noise_scale_stderr))]
    known = sorted(told, key=lambda b: b.noise_scale)
    if not known:
        return ""
    ends = [known[0]] if len(known) == 1 else [known[0], known[-1]]
    return "curvature noise scale, in examples:  " + " to ".join(
        f"{short(block.noise_scale)} ± {short(block.noise_scale_stderr)} ({block.name})" for block in ends
    )


def cells(block: BlockReport) -> list[str]:
    """The texts of one row, in the order of `COLUMNS`."""
    error = 100 * block.stderr / block.avg_sq_singular_value if block.avg_sq_singular_value > 0 else math.nan
    return [
        block.name,
        size(block.shape),
        short(block.activation_scaling),
        short(block.gamma),
        short(block.gamma_curvature),
        short(block.nu),
        short(block.avg_sq_singular_value),
        "exact" if block.ended == "exact" else short(error),
        short(block.ratio),
        short(block.relative_ratio),
    ]
