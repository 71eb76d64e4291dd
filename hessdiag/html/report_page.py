"""What the page says, apart from how it looks: the template fills in what is gathered here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.html.block_table import COLUMNS, MEANINGS, rows
from hessdiag.html.environment import environment
from hessdiag.html.figures import report_pictures
from hessdiag.html.text import embedded
from hessdiag.results.findings import BALANCED, UNBALANCED, Balance
from hessdiag.results.report import Report, read, sampling

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
)  # fields of a report that have a place of their own
# Unequal blocks are a fact about learning rates, which networks that train well share: no alarm.
TONES = {"uneven": "fact", "unbalanced": "fact"}
GAUGE_END = 50.0  # factor at the right end of the balance's scale


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
    verdict = report.verdict
    balance = verdict.balance
    named = dict.fromkeys(finding.rule for finding in report.findings)
    return (
        environment()
        .get_template("report_page.html.jinja")
        .render(
            report=report,
            verdict=verdict,
            balance=balance,
            level=balance.level,
            tone=TONES.get(balance.level, balance.level),
            sentence=balance.sentence,
            gauge=Gauge.of(balance) if len(report.weights) > 1 and balance.factor > 0 else None,
            thresholds=(BALANCED, UNBALANCED),
            columns=COLUMNS,
            meanings=MEANINGS,
            rows=rows(report),
            explanations={rule: CATALOGUE[rule] for rule in named if rule in CATALOGUE},
            places={block.name: number for number, block in enumerate(report.blocks)},
            sampling=sampling(report),
            read=read(report),
            matrix=MATRICES.get(report.matrix, report.matrix),
            view=VIEWS.get(report.per, report.per),
            figures=report_pictures(report),
            settings=[*settings(report), *report.versions.items()],
            data_id="report",
            data_class="Report",
            json=embedded(report.to_json()),
        )
    )


def settings(report: Report) -> list[tuple[str, str]]:
    """List what the report was asked for and measured on, by the names of its attributes."""
    names = [name for name in report.file_keys() if name not in NOT_SETTINGS]
    return [(name.replace("_", " "), str(getattr(report, name))) for name in names]


def _along(factor: float) -> float:
    return round(100 * min(1.0, math.log(factor) / math.log(GAUGE_END)), 1)
