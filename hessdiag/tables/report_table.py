"""A report as an aligned table, as wide as the terminal; 120 columns where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hessdiag.results.balance import missed_rtol, weigh
from hessdiag.results.findings import Finding
from hessdiag.results.numbers import percent, short
from hessdiag.results.rate_balance import balance_sentence
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.text_table import Part, TextTable, grouped, make_table, plain_text, size

ATTRIBUTES = {  # of a block, under the titles of its columns; keys of its JSON, too
    "block": "name",
    "shape": "shape",
    "ς": "activation_scaling",
    "γ": "gamma",
    "γ curv.": "gamma_curvature",
    "ν": "nu",
    "σ²": "avg_sq_singular_value",
    "± %": "stderr",
    "γ/σ²": "ratio",
    "relative": "relative_ratio",
}
COLUMNS = tuple(ATTRIBUTES)
EXPENDABLE = ("γ curv.", "relative", "ς", "γ/σ²", "shape", "± %")  # the first is left out first where it is narrow
UNDECIDED = "undecided"
MAX_FINDINGS = 4  # in full, of about two lines each


def render(report: Report) -> str:
    """The table with what was measured above it, and the spread and what was skipped below."""
    return plain_text([*diagnosis(report), *header(report), block_table(report), *footer(report)])


def render_whole(report: Report) -> str:
    """The same with all columns, all findings in full, and everything that was left out by name."""
    findings = told(report.verdict.sentence, report.findings, most=len(report.findings))
    parts: list[Part] = [*findings, "", *header(report), block_table(report), *footer(report, whole=True)]
    return plain_text([*parts, legend()], whole=True)


def legend() -> str:
    """Which attribute of a block each column shows; its JSON and CSV have the same names."""
    told = [f"{title} {name}" for title, name in ATTRIBUTES.items() if title not in (name, "block")]
    return f"attributes (and keys of the JSON) behind the columns: {', '.join(told)}"


def render_brief(report: Report) -> str:
    """The verdict with the gravest findings, and the balance."""
    return plain_text([*told(report.verdict.sentence, report.findings), *balance(report)])


def diagnosis(report: Report) -> list[str]:
    """The verdict, and the gravest findings."""
    return [*told(report.verdict.sentence, report.findings), ""]


def told(sentence: str, findings: Sequence[Finding], *, most: int = MAX_FINDINGS) -> list[str]:
    """A verdict with the gravest findings below it, `most` of them in full."""
    lines = [sentence]
    for finding in findings[:most]:
        lines += [f"  {finding.severity} {finding.rule}: {finding.message} {finding.advice}"]
    if more := findings[most:]:
        lines.append(f"  and {len(more)} more: {', '.join(f'{f.severity} {f.rule}' for f in more)}")
    if findings:
        lines.append(f"  (`hessdiag explain {findings[0].rule}` says why)")
    return lines


def header(report: Report) -> list[str]:
    """What was measured, of what."""
    matrix = {"ggn": "Gauss-Newton", "hessian": "Hessian"}[report.matrix]
    view = "of each example, averaged" if report.per == "example" else "of the batch mean"
    return [
        f"{report.model}, init {report.init}: {matrix} {view}",
        f"loss {report.loss}, batch {report.batch_size} ({report.data}), seed {report.seed},"
        f" {report.device} {report.dtype}",
        *filter(None, [read(report)]),
        f"method {report.method} ({report.method_reason})",
        "",
    ]


def read(report: Report) -> str:
    """How many batches of how many were read, and what reads more; nothing where there is one alone."""
    count, given = report.batches_read, report.batches_given
    if count == 0 or given == 1:
        return ""
    if count == given:
        return f"all {given} batches of the data read"
    first = "first batch" if count == 1 else f"first {count} batches"
    of = first if given is None else f"{count} of {given} batches"
    return f"{of} of the data read: --batches N or --batches all (in Python batches=N or None) reads more"


def block_table(report: Report) -> TextTable:
    """One row a block; names get the room that shapes and numbers leave."""
    return make_table(COLUMNS, rows(report), left=2, expendable=EXPENDABLE)


def rows(report: Report) -> list[list[str]]:
    """Texts of the rows, under `COLUMNS`."""
    return [cells(block) for block in report.blocks]


def footer(report: Report, *, whole: bool = False) -> list[str]:
    """Spread over the weight blocks, what ended the sampling, and what was left out."""
    return ["", *measured(report), *balance(report), *grouped("not measured:", report.skipped, whole=whole)]


def measured(report: Report) -> list[str]:
    """Spread over the weight blocks, and what ended the sampling."""
    spread = report.spread
    lines = [
        f"spread over weight blocks, max/min:  γ {short(spread['gamma'])}   ν {short(spread['nu'])}"
        f"   σ² {short(spread['avg_sq_singular_value'])}"
    ]
    if any(block.ended != "exact" for block in report.blocks):
        lines.append(sampling(report))
    return lines


def balance(report: Report) -> list[str]:
    """How far the blocks are apart, and what tells a learning rate."""
    return [balance_sentence(report, weigh(report))]


def sampling(report: Report) -> str:
    """What came of the random probing."""
    missed = [block.name for block in report.blocks if missed_rtol(block, report.rtol)]
    most = max((block.products for block in report.blocks), default=0)
    if missed:
        return f"sampling: rtol {report.rtol:g} missed with at most {most} products a block on {', '.join(missed)}"
    return f"sampling: rtol {report.rtol:g} reached with at most {most} products a block"


def cells(block: BlockReport) -> list[str]:
    """The texts of one row, in the order of `COLUMNS`."""
    return [
        block.name,
        size(block.shape),
        short(block.activation_scaling),
        short(block.gamma),
        short(block.gamma_curvature),
        short(block.nu),
        UNDECIDED if block.lost_in_noise else short(block.avg_sq_singular_value),
        "exact" if block.ended == "exact" else percent(math.nan if block.lost_in_noise else block.relative_stderr),
        short(math.nan if block.lost_in_noise else block.ratio),
        short(math.nan if block.lost_in_noise else block.relative_ratio),
    ]
