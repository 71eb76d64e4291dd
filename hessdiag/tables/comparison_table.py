"""A comparison as an aligned table."""

from __future__ import annotations

from hessdiag.results.block_change import BlockChange, Ratio
from hessdiag.results.comparison import Comparison
from hessdiag.results.findings import Finding
from hessdiag.results.numbers import short
from hessdiag.suggestions import few
from hessdiag.tables.text_table import TextTable, make_table, plain_text

EXPENDABLE = ("Pσ²E[W²]²", "ν rel.", "σ² rel.", "differs in")
COLUMNS = ("block", "differs in", "E[W²]", "ν", "ν rel.", "σ²", "σ² rel.", "Pσ²E[W²]²")


def render(comparison: Comparison) -> str:
    """What is to be said of it, what is compared, and the blocks, the most changed first."""
    return plain_text([*sentences(comparison), "", *header(comparison), block_table(comparison)])


def render_brief(comparison: Comparison) -> str:
    """What is to be said of it."""
    return plain_text(sentences(comparison))


def render_whole(comparison: Comparison) -> str:
    """As `render`, with all columns and names in full."""
    return plain_text([*sentences(comparison), "", *header(comparison), block_table(comparison)], whole=True)


def header(comparison: Comparison) -> list[str]:
    """Name the two networks and what was measured of both."""
    return [
        f"before: {comparison.before}",
        f"after:  {comparison.after}",
        f"loss {comparison.loss}, matrix {comparison.matrix}, per {comparison.per}",
        "ratios are after over before; rel.: over that of the median block",
        *(f"measured otherwise: {difference}" for difference in comparison.differences),
        "",
    ]


def block_table(comparison: Comparison) -> TextTable:
    """One row a block, the most changed first."""
    return make_table(COLUMNS, [cells(change) for change in comparison], left=2, expendable=EXPENDABLE)


def cells(change: BlockChange) -> list[str]:
    """The texts of one row, in the order of `COLUMNS`."""
    weight_sq, nu = change.ratios["weight_sq"], change.ratios["nu"]
    sigma = change.ratios["avg_sq_singular_value"]
    return [
        change.name,
        "–" if change.cause == "nothing" else change.cause,
        short(weight_sq.value),
        short(nu.value),
        short(nu.relative),
        with_interval(sigma),
        short(sigma.relative),
        short(change.ratios["curvature_scaling"].value),
    ]


def with_interval(ratio: Ratio) -> str:
    """Show a ratio, with the factor that sampling noise leaves open at 95 % where it was sampled.

    >>> with_interval(Ratio(before=1.0, after=2.0, value=2.0, relative=1.0, low=1.0, high=4.0))
    '2.00 ×/÷ 2.00'
    """
    if not ratio.low < ratio.value:
        return short(ratio.value)
    return f"{short(ratio.value)} ×/÷ {short(ratio.high / ratio.value)}"


def sentences(comparison: Comparison) -> list[str]:
    """What is gone, what is new, and what changed; or that nothing did."""
    lines = [f"gone: {finding.rule} {_where(finding)}" for finding in comparison.gone]
    lines += [f"new: {_sentence(finding)}" for finding in comparison.new]
    lines += [_sentence(finding) for finding in comparison.findings]
    return lines or [f"The two agree in all {len(comparison)} blocks."]


def _sentence(finding: Finding) -> str:
    return f"{finding.rule} {finding.severity}: {finding.message} {finding.advice}"


def _where(finding: Finding) -> str:
    """Say at which blocks a finding was, and how grave it was."""
    named = few(finding.blocks)
    return f"at {named} ({finding.severity})" if named else f"({finding.severity})"
