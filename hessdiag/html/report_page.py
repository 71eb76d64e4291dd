"""What the page says, apart from how it looks: the template fills in what is gathered here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from hessdiag.html.environment import environment
from hessdiag.html.figures import report_pictures
from hessdiag.html.text import embedded
from hessdiag.results.balance import BALANCED, UNBALANCED, weigh
from hessdiag.results.judgement import Balance
from hessdiag.results.rate_balance import balance_sentence, rate_sentence
from hessdiag.results.report import BlockReport, Report
from hessdiag.tables.report_table import columns, noise, sampling
from hessdiag.tables.report_table import rows as texts_of

# What the columns of the text table are called in full.
MEANINGS = {
    "ς": "activation scaling",
    "γ": "scaling factor of the theory",
    "γ curv.": "scaling factor with the gradient replaced by a vector sent through the Hessian of the loss",
    "ν": "weight-gradient ratio",
    "σ²": "average squared singular value, measured",
    "± %": "standard error of σ² in percent",
    "γ/σ²": "theory over measurement",
    "relative": "theory over measurement, divided by its geometric mean over the weight blocks",
    "lr SGD": "learning rate at which a first step of SGD in this block alone is best",
    "lr Adam": "learning rate at which a first step of Adam in this block alone is best",
}
MATRICES = {"ggn": "Gauss-Newton matrix", "hessian": "Hessian"}
VIEWS = {"example": "of each example, averaged over the batch", "batch": "of the mean loss of the batch"}
NOT_SETTINGS = (
    "blocks",
    "heatmap",
    "skipped",
    "versions",
    "findings",
    "signals",
    "signals_missing",
    "learning_rates",
)  # fields of a report that have a place of their own
GAUGE_END = 50.0  # factor at the right end of the balance's scale


@dataclass(frozen=True)
class Row:
    """One block in the table.

    Attributes:
        block: the block.
        texts: its cells, in the order of the columns.
        place: percent of the way from the smallest to the largest σ² of a weight, on a logarithmic scale; `None` for
            other blocks and where σ² has no place on one.
        extreme: `"largest"` or `"smallest"` of the weights, or nothing.
    """

    block: BlockReport
    texts: tuple[str, ...]
    place: float | None
    extreme: str


@dataclass(frozen=True)
class Gauge:
    """Where the balance's numbers lie on a logarithmic scale of factors, in percent of its length."""

    factor: float
    low: float
    high: float
    balanced: float
    unbalanced: float

    @classmethod
    def of(cls, balance: Balance) -> Gauge:
        """Place a balance that has a factor."""
        return cls(*(_along(f) for f in (balance.factor, balance.low, balance.high, BALANCED, UNBALANCED)))


def render(report: Report) -> str:
    """Write the whole page; the same report gives the same text."""
    balance = weigh(report)
    return (
        environment()
        .get_template("report_page.html.jinja")
        .render(
            report=report,
            verdict=report.verdict,
            balance=balance,
            level=balance.level,
            sentence=balance_sentence(report, balance),
            gauge=Gauge.of(balance) if len(report.weights) > 1 and balance.factor > 0 else None,
            thresholds=(BALANCED, UNBALANCED),
            columns=columns(report),
            meanings=MEANINGS,
            rates=rate_sentence(report),
            rows=rows(report),
            sampling=sampling(report) if any(block.ended != "exact" for block in report.blocks) else "",
            noise=noise(report),
            matrix=MATRICES.get(report.matrix, report.matrix),
            view=VIEWS.get(report.per, report.per),
            figures=report_pictures(report),
            settings=[*settings(report), *report.versions.items()],
            data_id="report",
            data_class="Report",
            json=embedded(report.to_json()),
        )
    )


def rows(report: Report) -> list[Row]:
    """List the table's rows in the report's order."""
    sizes = [b.avg_sq_singular_value for b in report.weights]
    sizes = [size for size in sizes if size > 0 and math.isfinite(size)]
    low, high = (math.log10(min(sizes)), math.log10(max(sizes))) if sizes else (0.0, 0.0)
    room = max(0.0, 1.0 - (high - low)) / 2  # a decade at least, so that equal blocks look equal
    texts = zip(report.blocks, texts_of(report), strict=True)
    return [_row(block, tuple(row), low - room, high + room, _ends(sizes)) for block, row in texts]


def settings(report: Report) -> list[tuple[str, str]]:
    """List what the report was asked for and measured on, by the names of its attributes."""
    names = [f.name for f in fields(report) if f.compare and f.name not in NOT_SETTINGS]
    return [(name.replace("_", " "), str(getattr(report, name))) for name in names]


def _row(block: BlockReport, texts: tuple[str, ...], low: float, high: float, ends: Sequence[float]) -> Row:
    size = block.avg_sq_singular_value
    if block.kind != "weight" or not (size > 0 and math.isfinite(size)):
        return Row(block, texts, None, "")
    extreme = "largest" if size in ends[1:] else "smallest" if size in ends[:1] else ""
    return Row(block, texts, round(100 * (math.log10(size) - low) / (high - low), 1), extreme)


def _ends(sizes: Sequence[float]) -> tuple[float, ...]:
    """Return the smallest and the largest, where these differ."""
    return (min(sizes), max(sizes)) if sizes and min(sizes) < max(sizes) else ()


def _along(factor: float) -> float:
    return round(100 * min(1.0, math.log(factor) / math.log(GAUGE_END)), 1)
